/** Folders that a user names. */

import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { systemErrorCode } from './errors.js';

/**
 * Makes `path` (absolute) and what is missing above it. Node's own recursive mkdir never returns on a file system that
 * answers ENOENT to every mkdir, as /proc does. Errors: those of mkdir(2); an existing file is found by whoever uses the path.
 */
export function makeFolder(path: string, mode = 0o755): void {
  try {
    mkdirSync(path, { mode });
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === 'EEXIST') return;
    if (code !== 'ENOENT' || dirname(path) === path) throw error;
    makeFolder(dirname(path));
    mkdirSync(path, { mode });
  }
}
