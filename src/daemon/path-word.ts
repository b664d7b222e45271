/** Paths as they stand on a command line. */

import { resolve } from 'node:path';
import { TmaxError } from '../errors.js';

/** Absolute. Errors: EINVAL it is empty, as where a script's variable is not set. */
export function parsePath(text: string, option: string): string {
  if (text.trim() !== '') return resolve(text);
  throw new TmaxError('EINVAL', `${option} takes a path, not ""`, { source: 'settings' });
}
