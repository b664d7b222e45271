/**
 * The status page: one HTML file, with a policy that allows its own script and style by their digests, and nothing else.
 * What it shows comes from `/summary.json`.
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { packageRoot } from '../../version.js';
import type { WebDocument } from './web-server.js';

const FILE = new URL('src/daemon/metrics/status-page.html', packageRoot);

/** The page; read from disk each time, as seldom as somebody looks. Errors: those of reading it. */
export function statusPage(): WebDocument {
  const text = readFileSync(FILE, 'utf8');
  return {
    contentType: 'text/html; charset=utf-8',
    text,
    headers: { 'content-security-policy': policyOf(text), 'x-frame-options': 'DENY' },
  };
}

/** As in https://www.w3.org/TR/CSP3/: what is not named is forbidden. */
function policyOf(page: string): string {
  return [
    `default-src 'none'`,
    `script-src ${digestOf(page, 'script')}`,
    `style-src ${digestOf(page, 'style')}`,
    `connect-src 'self'`,
    `img-src data:`,
    `base-uri 'none'`,
    `form-action 'none'`,
    `frame-ancestors 'none'`,
    // No text can become markup, whatever a later hand writes into the page.
    `require-trusted-types-for 'script'`,
    `trusted-types 'none'`,
  ].join('; ');
}

/** Of what stands between the tags, as a source of a policy. */
function digestOf(page: string, tag: 'script' | 'style'): string {
  const content = page.slice(page.indexOf(`<${tag}>`) + `<${tag}>`.length, page.lastIndexOf(`</${tag}>`));
  return `'sha256-${createHash('sha256').update(content).digest('base64')}'`;
}
