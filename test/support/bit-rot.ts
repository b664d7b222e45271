/** What a failing disk does to a file. */

import { closeSync, openSync, readSync, statSync, utimesSync, writeSync } from 'node:fs';

/** Flips one bit so that nothing but the content shows it. */
export function flipBit(path: string, atByte: number): void {
  const { atime, mtime } = statSync(path);
  const file = openSync(path, 'r+');
  const byte = Buffer.alloc(1);
  readSync(file, byte, 0, 1, atByte);
  byte.writeUInt8(byte.readUInt8() ^ 1);
  writeSync(file, byte, 0, 1, atByte);
  closeSync(file);
  utimesSync(path, atime, mtime);
}
