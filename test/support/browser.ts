/** A headless Chromium, as people look at the status page. */

import { existsSync } from 'node:fs';
import { launch, type Page } from 'puppeteer-core';
import type { Lifetime } from './temporary.js';

const EXECUTABLE = process.env['CHROMIUM'] ?? '/usr/bin/chromium';

/** Whether there is one. Tests that need it are skipped where not, and `.ci/run` takes that for a failure. */
export const hasBrowser = existsSync(EXECUTABLE);

export interface WatchedPage {
  readonly page: Page;
  /** What the browser has complained of: errors of scripts, requests refused, the page's policy violated. */
  readonly complaints: string[];
}

/** An empty page in a browser of its own, closed with the test. */
export async function openBrowser(t: Lifetime, args: readonly string[] = []): Promise<WatchedPage> {
  const browser = await launch({
    executablePath: EXECUTABLE,
    // Tests run as root, in containers with a small /dev/shm.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--no-first-run', ...args],
  });
  t.teardown(() => browser.close());
  const page = await browser.newPage();
  await page.setViewport({ width: 1200, height: 1000 });
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warn') complaints.push(message.text());
  });
  return { page, complaints };
}
