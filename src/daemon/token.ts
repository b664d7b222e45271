/** The Hub token: from the environment, else from its file, read anew whenever that changes, so that a renewed login counts. */

import { readFile, stat } from 'node:fs/promises';
import { systemErrorCode, TmaxError } from '../errors.js';
import type { TokenPlaces } from './settings.js';

/** No token is longer; a file that is, is no token file. */
const MAX_TOKEN_BYTES = 4096;

/** A function that gives the token of now, or undefined where there is none. Errors: EACCES the file can't be read. */
export function tokenReader(places: TokenPlaces): () => Promise<string | undefined> {
  const { value, file } = places;
  let known: { token: string | undefined; modifiedMs: number } | undefined;
  return async () => {
    if (value !== undefined || file === undefined) return value;
    try {
      const stats = await stat(file);
      if (known?.modifiedMs === stats.mtimeMs) return known.token;
      const text = stats.isFile() && stats.size <= MAX_TOKEN_BYTES ? (await readFile(file, 'utf8')).trim() : '';
      known = { token: text === '' ? undefined : text, modifiedMs: stats.mtimeMs };
      return known.token;
    } catch (cause) {
      const code = systemErrorCode(cause);
      if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
      throw new TmaxError('EACCES', `the token file ${file} can't be read (${code}); mend its mode, or set HF_TOKEN`, {
        cause,
        source: 'settings',
      });
    }
  };
}
