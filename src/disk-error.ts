/** What a failure of the cache's own disk means to whoever waits, and what is to be done about it. */

import { messageOf, systemErrorCode, TmaxError } from './errors.js';

const FULL = ['ENOSPC', 'EDQUOT'];

/**
 * Any failure of the cache's disk as a `TmaxError` (one that is a `TmaxError` already stays what it is): ENOSPC where the
 * disk or a quota is full, else EIO. `what`: what could not be done, and to what.
 */
export function diskError(cause: unknown, what: string): TmaxError {
  if (cause instanceof TmaxError) return cause;
  const code = systemErrorCode(cause) ?? '';
  const reason = messageOf(cause);
  // Node has no words for some, as EDQUOT.
  const said = reason.includes(code) ? reason : `${code}: ${reason}`;
  const options = { cause, source: 'cache', level: 'error' } as const;
  return new TmaxError(FULL.includes(code) ? 'ENOSPC' : 'EIO', `${what} (${said}); ${advice(code)}`, options);
}

function advice(code: string): string {
  if (FULL.includes(code)) return 'the disk or a quota is full: free some room, or lower --cache-size';
  if (code === 'EROFS') {
    return (
      'the disk of the cache is read-only: what is cached is served, nothing can be fetched; ' +
      'mount it for writing again (no restart is needed), or use another --cache-dir'
    );
  }
  return 'look at the disk of the cache (dmesg says more); once it is mended, open again: no restart is needed';
}
