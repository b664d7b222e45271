/** Temporary folders that end with their test. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';

/** All that is needed of a test, or of whatever else ends one day. */
export type Lifetime = Pick<ExecutionContext, 'teardown'>;

export function temporaryFolder(t: Lifetime): string {
  const folder = mkdtempSync(join(tmpdir(), 'tmaxfs-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
