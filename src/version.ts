/** The version of this package, as published. */

import { readFileSync } from 'node:fs';

/** The package's root folder; this file is compiled to build/src/. */
export const packageRoot = new URL('../../', import.meta.url);

export const version: string = readVersion();

function readVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('package.json', packageRoot), 'utf8'));
  const isManifest = typeof manifest === 'object' && manifest !== null && 'version' in manifest;
  return isManifest ? String(manifest.version) : 'unknown';
}
