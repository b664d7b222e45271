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
    makeUnlessThere(path, mode);
  } catch (error) {
    if (systemErrorCode(error) !== 'ENOENT' || dirname(path) === path) throw error;
    makeFolder(dirname(path));
    makeUnlessThere(path, mode);
  }
}

/** Others may be making it at this moment. */
function makeUnlessThere(path: string, mode: number): void {
  try {
    mkdirSync(path, { mode });
  } catch (error) {
    if (systemErrorCode(error) !== 'EEXIST') throw error;
  }
}
