/** Temporary folders that end with their test. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';

export function temporaryFolder(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tmaxfs-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
