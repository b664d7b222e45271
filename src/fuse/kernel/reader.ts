/**
 * A reading thread: blocks in read(2) on /dev/fuse, serves READ by itself, and passes all else to the main thread.
 *
 * READ needs nothing but the request: its handle is the number of a descriptor of this process (see open-files.ts), and
 * the kernel sends no READ after RELEASE. So reads of an open file wait for nothing that the main thread does.
 * The thread ends when the kernel ends the connection.
 */

import { readSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { systemErrorCode } from '../../errors.js';
import { Opcode } from '../protocol/constants.js';
import { MAX_READ_BYTES } from '../protocol/negotiation.js';
import { InHeader, OutHeader, ReadIn } from '../protocol/structs.js';
import { Doorbell, Mailbox, type MailboxMemory } from './mailbox.js';

/** What the main thread starts a reading thread with. */
export interface ReaderData {
  readonly device: number;
  readonly mailbox: MailboxMemory;
  readonly doorbell: SharedArrayBuffer;
  /** READ is only served from descriptors that the driver itself made, which are not below this number. */
  readonly lowestHandle: number;
}

/** What a reading thread tells the main thread: that there is mail, or that a cache file could not be read. */
export type ReaderMessage = 'mail' | { readonly readError: string };

/** Read errors are told at most this often; each READ is answered with its errno all the same. */
const READ_ERROR_INTERVAL_MS = 10_000;
/**
 * Room for any request but WRITE, which can't happen; the kernel asks for at least 8 KiB and answers by itself a
 * request that is longer than the buffer.
 */
const REQUEST_BUFFER_BYTES = 64 * 1024;

/** The request was withdrawn before it could be read, or a signal came: read on. */
const TRY_AGAIN: ReadonlySet<string> = new Set(['ENOENT', 'EINTR', 'EAGAIN']);
/** The file system was unmounted, or the connection aborted. */
const DISCONNECTED: ReadonlySet<string> = new Set(['ENODEV', 'ECONNABORTED']);

const OPCODE_OFFSET = InHeader.offsets.opcode;
const UNIQUE_OFFSET = InHeader.offsets.unique;

class Reader {
  readonly #device: number;
  readonly #mailbox: Mailbox;
  readonly #doorbell: Doorbell;
  readonly #lowestHandle: bigint;
  readonly #tell: (message: ReaderMessage) => void;
  readonly #request = Buffer.alloc(REQUEST_BUFFER_BYTES);
  readonly #reply = Buffer.alloc(OutHeader.size + MAX_READ_BYTES);
  #lastReadErrorAtMs = Number.NEGATIVE_INFINITY;

  constructor(data: ReaderData, tell: (message: ReaderMessage) => void) {
    this.#device = data.device;
    this.#mailbox = new Mailbox(data.mailbox);
    this.#doorbell = new Doorbell(data.doorbell);
    this.#lowestHandle = BigInt(data.lowestHandle);
    this.#tell = tell;
  }

  /** Serves until the connection ends. */
  run(): void {
    for (;;) {
      try {
        const length = readSync(this.#device, this.#request, 0, REQUEST_BUFFER_BYTES, null);
        this.#serve(this.#request.subarray(0, length));
      } catch (error) {
        const code = systemErrorCode(error) ?? '';
        if (DISCONNECTED.has(code)) return;
        if (!TRY_AGAIN.has(code)) throw error;
      }
    }
  }

  #serve(message: Buffer): void {
    const opcode = message.readUInt32LE(OPCODE_OFFSET);
    this.#mailbox.count(opcode);
    if (opcode === Opcode.READ) {
      this.#read(message);
    } else if (opcode !== Opcode.FORGET && opcode !== Opcode.BATCH_FORGET) {
      this.#mailbox.put(message);
      if (this.#doorbell.takeSleep()) this.#tell('mail');
    }
  }

  #read(message: Buffer): void {
    const unique = message.readBigUInt64LE(UNIQUE_OFFSET);
    const { handle, offset, size } = ReadIn.read(message, InHeader.size);
    let length = 0;
    let error = 0;
    try {
      if (handle < this.#lowestHandle) error = -constants.errno.EBADF;
      else length = this.#fill(Number(handle), offset, Math.min(size, MAX_READ_BYTES));
    } catch (thrown) {
      error = -this.#readErrno(thrown);
    }
    OutHeader.write(this.#reply, 0, { length: OutHeader.size + length, error, unique });
    this.#send(OutHeader.size + length);
  }

  /** Reads until the buffer is full or the file ends: the kernel takes a short answer for the end of the file. */
  #fill(descriptor: number, offset: bigint, size: number): number {
    let length = 0;
    while (length < size) {
      const position = offset + BigInt(length);
      const count = readSync(descriptor, this.#reply, OutHeader.size + length, size - length, position);
      if (count === 0) break;
      length += count;
    }
    return length;
  }

  #send(length: number): void {
    try {
      writeSync(this.#device, this.#reply, 0, length);
    } catch (error) {
      // ENOENT: the request was withdrawn (its caller was killed). ENODEV: the next read ends this thread.
      const code = systemErrorCode(error) ?? '';
      if (code !== 'ENOENT' && !DISCONNECTED.has(code)) throw error;
    }
  }

  #readErrno(thrown: unknown): number {
    const nowMs = performance.now();
    if (nowMs - this.#lastReadErrorAtMs >= READ_ERROR_INTERVAL_MS) {
      this.#lastReadErrorAtMs = nowMs;
      this.#tell({ readError: thrown instanceof Error ? thrown.message : String(thrown) });
    }
    const named = Object.entries(constants.errno).find(([name]) => name === systemErrorCode(thrown));
    return named?.[1] ?? constants.errno.EIO;
  }
}

if (parentPort !== null) {
  const port = parentPort;
  const data: ReaderData = workerData;
  new Reader(data, (message) => port.postMessage(message)).run();
}
