/** fsync(2) of a folder: what was created, renamed or removed in it outlives a power cut. */

import { constants } from 'node:fs';
import { open } from 'node:fs/promises';

export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
