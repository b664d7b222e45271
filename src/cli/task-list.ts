/** A list of tasks, as a user writes it. */

import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { messageOf, TmaxError } from '../errors.js';

/** The names in a file, "-" for standard input: one a line; what follows a "#" is a comment. Errors: EINVAL it can't be read. */
export async function readTaskList(file: string): Promise<string[]> {
  let list: string;
  try {
    list = file === '-' ? await text(process.stdin) : readFileSync(file, 'utf8');
  } catch (cause) {
    throw new TmaxError('EINVAL', `the list of tasks can't be read: ${messageOf(cause)}`, { cause, source: 'cli' });
  }
  return list
    .split('\n')
    .map((line) => line.replace(/#.*/, '').trim())
    .filter((line) => line !== '');
}
