/** Folders that a test may fill, gone after it. */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';

export async function temporaryFolder(t: ExecutionContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tmaxfs-test-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
