/** Takes apart what the kernel sends: a `fuse_in_header`, then a body that depends on the opcode. Pure. */

import { isUtf8 } from 'node:buffer';
import { TmaxError } from '../../errors.js';
import type { Caller } from '../../filesystem/contract.js';
import { Opcode } from './constants.js';
import type { Struct } from './layout.js';
import { InHeader } from './structs.js';

export interface Request {
  readonly opcode: number;
  /** Names the request among all of this connection; never used twice. */
  readonly unique: bigint;
  readonly nodeId: bigint;
  readonly caller: Caller;
  /** What follows the header; valid only while the request is being handled. */
  readonly body: Buffer;
}

/** Splits a message; undefined if it is too short to be one. */
export function decodeRequest(message: Buffer): Request | undefined {
  if (message.length < InHeader.size) return undefined;
  const header = InHeader.read(message, 0);
  return {
    opcode: header.opcode,
    unique: header.unique,
    nodeId: header.nodeId,
    caller: { uid: header.uid, gid: header.gid, pid: header.pid },
    body: message.subarray(InHeader.size),
  };
}

export function decodeBody<Values>(request: Request, layout: Struct<Values>): Values {
  return layout.read(request.body, 0);
}

/** The longest name of a file or an extended attribute (NAME_MAX, XATTR_NAME_MAX in <linux/limits.h>). */
export const MAX_NAME_BYTES = 255;

/** The name that starts at `offset` of the body and ends at a NUL. Errors: ENAMETOOLONG; ENOENT not UTF-8. */
export function decodeName(request: Request, offset = 0): string {
  const bytes = request.body.subarray(offset, offset + MAX_NAME_BYTES + 1);
  const length = bytes.indexOf(0);
  if (length < 0) throw new TmaxError('ENAMETOOLONG', 'a name is longer than 255 bytes', { level: 'debug' });
  const name = bytes.subarray(0, length);
  if (!isUtf8(name)) throw new TmaxError('ENOENT', 'there is no such name: it is not UTF-8', { level: 'debug' });
  return name.toString('utf8');
}

const NAMES: ReadonlyMap<number, string> = new Map(Object.entries(Opcode).map(([name, opcode]) => [opcode, name]));

/** The name of an opcode, or "UNKNOWN". */
export function opcodeName(opcode: number): string {
  return NAMES.get(opcode) ?? 'UNKNOWN';
}
