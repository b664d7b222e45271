/** Waiting no longer than one may. */

import { TmaxError } from '../errors.js';

/** What `work` resolves to. Errors: its own; ETIMEDOUT with `words` once `limitMs` are over: it goes on, and nobody waits. */
export async function within<Result>(work: Promise<Result>, limitMs: number, words: string): Promise<Result> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new TmaxError('ETIMEDOUT', words, { source: 'cli' })), limitMs);
  });
  return Promise.race([work, tooLate]).finally(() => clearTimeout(timer));
}
