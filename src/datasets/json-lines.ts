/**
 * JSON lines, one value replaced in each. A line is never written anew: the bytes of the value give way to others, and everything else
 * (order of keys, spelling of numbers, escapes, white space, line ends) stays as it is.
 */

import { createReadStream } from 'node:fs';
import { findNodeAtLocation, type Node, parseTree } from 'jsonc-parser';
import { messageOf, TmaxError } from '../errors.js';
import { type ColumnPath, type Decide, type RewriteResult, RowCount, textAt } from './rows.js';

/** Rows of agents hold whole conversations: megabytes, not hundreds of them. */
const MAX_LINE_BYTES = 64 * 1024 * 1024;
const NEWLINE = 0x0a;

export interface JsonLinesOptions {
  readonly input: string;
  readonly column: ColumnPath;
  readonly decide: Decide;
  /** Takes the output in order; called no more once a row could not be resolved. */
  readonly write: (bytes: Buffer) => Promise<void>;
  readonly maxLineBytes?: number;
}

/** Errors: EBADMSG a line that is no JSON, too long, or has the column twice; those of reading and writing. */
export async function rewriteJsonLines(options: JsonLinesOptions): Promise<RewriteResult> {
  const { input, column, decide, write, maxLineBytes = MAX_LINE_BYTES } = options;
  const count = new RowCount();
  let number = 0;
  for await (const line of linesOf(input, maxLineBytes)) {
    number += 1;
    const text = decoded(line, number);
    if (text.trim() === '') {
      if (count.isComplete) await write(line);
      continue;
    }
    const row = parsed(text, number);
    const current = textAt(row, column);
    const place = placeOf(text, column, number);
    const decision =
      place === undefined ? { reason: `the row has no ${column.join('.')}` } : await decide(row, current);
    if (place === undefined || 'reason' in decision) {
      count.unresolved(number, current, 'reason' in decision ? decision.reason : '');
      continue;
    }
    count.resolved();
    if (!count.isComplete) continue;
    const { offset, length } = place;
    await write(Buffer.from(text.slice(0, offset) + JSON.stringify(decision.image) + text.slice(offset + length)));
  }
  return count.result();
}

/** Each with its line end, as it is. Errors: EBADMSG too long. */
async function* linesOf(input: string, maxLineBytes: number): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let length = 0;
  let number = 1;
  for await (const chunk of createReadStream(input)) {
    let rest = chunk as Buffer;
    while (rest.length > 0) {
      const end = rest.indexOf(NEWLINE) + 1;
      const part = end === 0 ? rest : rest.subarray(0, end);
      length += part.length;
      if (length > maxLineBytes) throw bad(number, `it has more than ${maxLineBytes} bytes`);
      parts.push(part);
      rest = rest.subarray(part.length);
      if (end === 0) break;
      yield Buffer.concat(parts);
      parts = [];
      length = 0;
      number += 1;
    }
  }
  if (length > 0) yield Buffer.concat(parts);
}

/** Only what is UTF-8 comes out again as the same bytes. */
function decoded(line: Buffer, number: number): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(line);
  } catch (cause) {
    throw bad(number, 'it is not UTF-8', cause);
  }
}

function parsed(text: string, number: number): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw bad(number, `it is not JSON: ${messageOf(cause).slice(0, 120)}`, cause);
  }
}

/** Where the column's value stands in the text, in UTF-16 units; undefined where there is none. */
function placeOf(text: string, column: ColumnPath, number: number): Pick<Node, 'offset' | 'length'> | undefined {
  const root = parseTree(text, undefined, { disallowComments: true });
  if (root === undefined) return undefined;
  const nested = findNodeAtLocation(root, [...column]);
  const path = nested === undefined ? [column.join('.')] : column;
  if (isRepeated(root, path))
    throw bad(number, `it has ${column.join('.')} twice, and readers differ in which they take`);
  return nested ?? findNodeAtLocation(root, [...path]);
}

/** Whether one of the keys on the way is there more than once. */
function isRepeated(root: Node, path: ColumnPath): boolean {
  let node: Node | undefined = root;
  for (const step of path) {
    const same: Node[] = (node?.children ?? []).filter(({ children }) => children?.[0]?.value === step);
    if (same.length > 1) return true;
    node = same[0]?.children?.[1];
  }
  return false;
}

function bad(number: number, what: string, cause?: unknown): TmaxError {
  return new TmaxError('EBADMSG', `line ${number} can't be rewritten: ${what}`, { cause, source: 'dataset' });
}
