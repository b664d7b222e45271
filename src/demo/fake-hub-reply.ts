/**
 * Sending an answer, whole or faulty. A reply is built as if all were well; what a fault does to it happens here alone.
 *
 * Bodies are streamed in pieces, with back-pressure, and never held whole.
 */

import { createReadStream } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { createGzip } from 'node:zlib';
import type { Fault } from './fake-hub-faults.js';
import type { OpenRequest, RequestLog } from './fake-hub-log.js';
import type { FakeFile } from './fake-hub-repository.js';

export interface Body {
  readonly sizeBytes: number;
  /** Bytes from `start` up to, not including, `end`. */
  read(start: number, end: number): AsyncIterable<Buffer>;
}

export interface Reply {
  readonly status: number;
  /** Content-Length is added when the reply is sent. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Body;
  /** Whether a Range header is honoured. */
  readonly ranged: boolean;
}

/** The answer together with the part of it that was asked for. */
interface Plan {
  status: number;
  headers: Record<string, string>;
  start: number;
  end: number;
  pieces: AsyncIterable<Buffer>;
}

const READ_BYTES = 256 * 1024;
/** A slow body is sent this often. */
const SLOW_TICK_MS = 20;

export function bytesBody(bytes: Buffer): Body {
  return {
    sizeBytes: bytes.length,
    async *read(start, end) {
      for (let at = start; at < end; at += READ_BYTES) yield bytes.subarray(at, Math.min(at + READ_BYTES, end));
    },
  };
}

/** The content of a file, or undefined if it was declared without one. */
export function bodyOf(file: FakeFile): Body | undefined {
  const { body, sizeBytes } = file;
  if (body === undefined) return undefined;
  if (Buffer.isBuffer(body)) return bytesBody(body);
  return {
    sizeBytes,
    read: (start, end) =>
      start >= end
        ? Readable.from([])
        : createReadStream(body.file, { start, end: end - 1, highWaterMark: READ_BYTES }),
  };
}

export function textReply(status: number, text: string, headers: Record<string, string> = {}): Reply {
  const type = { 'content-type': 'text/plain; charset=utf-8' };
  return { status, headers: { ...type, ...headers }, body: bytesBody(Buffer.from(text)), ranged: false };
}

export function jsonReply(value: unknown, status = 200, headers: Record<string, string> = {}): Reply {
  return textReply(status, JSON.stringify(value), { 'content-type': 'application/json; charset=utf-8', ...headers });
}

/** Sends the reply as the fault has it. Resolves when the answer is complete or the connection is gone. */
export async function send(
  reply: Reply,
  fault: Fault | undefined,
  request: IncomingMessage,
  response: ServerResponse,
  entry: OpenRequest,
  log: RequestLog,
): Promise<void> {
  if (fault?.kind === 'reset' && fault.afterBytes === undefined) {
    response.socket?.resetAndDestroy();
    return;
  }
  if (fault?.kind === 'stall' && fault.afterBytes === undefined) return;

  const plan = planOf(replaced(reply, fault, request), fault, request.headers.range);
  response.writeHead(plan.status, plan.headers);
  response.flushHeaders();
  entry.status = plan.status;
  log.changed(entry);
  if (request.method === 'HEAD' || plan.status === 204 || plan.status === 304) {
    response.end();
    return;
  }

  const limitBytes = fault !== undefined && 'afterBytes' in fault ? (fault.afterBytes ?? 0) : Number.POSITIVE_INFINITY;
  for await (const piece of plan.pieces) {
    const allowed = piece.subarray(0, Math.min(piece.length, limitBytes - entry.bytesSent));
    if (allowed.length > 0 && !(await write(response, allowed))) return;
    entry.bytesSent += allowed.length;
    log.changed(entry);
    if (entry.bytesSent >= limitBytes) break;
  }
  // Who has all bytes of an answer asks for the next one on the same connection.
  const isWhole = entry.bytesSent >= plan.end - plan.start;
  if (fault?.kind === 'reset') response.socket?.resetAndDestroy();
  else if (fault?.kind === 'cut') response.socket?.destroySoon();
  else if (fault?.kind !== 'stall' || isWhole) response.end();
}

/** The reply that a fault puts in place of the right one. */
function replaced(reply: Reply, fault: Fault | undefined, request: IncomingMessage): Reply {
  switch (fault?.kind) {
    case 'status':
      return textReply(fault.status, fault.body ?? `fault: ${fault.status}`, fault.headers);
    case 'expired':
      return expiredReply();
    case 'no-content':
      return { ...textReply(204, ''), headers: {} };
    case 'redirect-loop':
      return textReply(302, 'Found', { location: request.url ?? '/' });
    case 'html':
      return textReply(200, '<!DOCTYPE html><html><body>Please log in to the network.</body></html>', {
        'content-type': 'text/html',
      });
    default:
      return reply;
  }
}

/** What the CDN says of a URL that is out of date or that it did not sign. */
export function expiredReply(): Reply {
  const xml = '<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>';
  return textReply(403, xml, { 'content-type': 'application/xml' });
}

/** Status, headers and the bytes to be sent, given the Range that was asked for and what the fault does to it. */
function planOf(reply: Reply, fault: Fault | undefined, rangeHeader: string | undefined): Plan {
  const { body } = reply;
  const totalBytes = fault?.kind === 'truncate' ? Math.min(fault.toBytes, body.sizeBytes) : body.sizeBytes;
  const whole = fault?.kind === 'ignore-range' || fault?.kind === 'gzip' || !reply.ranged;
  const range = whole ? undefined : parseRange(rangeHeader, totalBytes);
  const headers: Record<string, string> = { ...reply.headers };

  if (range === 'unsatisfiable') {
    headers['content-range'] = `bytes */${totalBytes}`;
    headers['content-length'] = '0';
    return { status: 416, headers, start: 0, end: 0, pieces: Readable.from([]) };
  }
  let status = reply.status;
  let { start, end } = range ?? { start: 0, end: totalBytes };
  if (range !== undefined) {
    status = 206;
    if (fault?.kind === 'wrong-range') {
      start = Math.min(start + fault.shiftBytes, totalBytes - 1);
      end = Math.min(end + fault.shiftBytes, totalBytes);
    }
    headers['content-range'] = `bytes ${start}-${end - 1}/${totalBytes}`;
  }
  const excessBytes = fault?.kind === 'excess' ? fault.bytes : 0;
  headers['content-length'] = String(end - start + excessBytes);
  if (fault?.kind === 'chunked' || fault?.kind === 'gzip') delete headers['content-length'];
  if (fault?.kind === 'gzip') headers['content-encoding'] = 'gzip';
  return { status, headers, start, end, pieces: altered(body.read(start, end), start, fault) };
}

/** The body's bytes, altered as the fault demands. */
function altered(pieces: AsyncIterable<Buffer>, start: number, fault: Fault | undefined): AsyncIterable<Buffer> {
  switch (fault?.kind) {
    case 'corrupt':
      return corrupted(pieces, fault.atByte - start);
    case 'excess':
      return extended(pieces, fault.bytes);
    case 'slow':
      return slowed(pieces, fault.bytesPerSecond);
    case 'gzip':
      return Readable.from(pieces).pipe(createGzip());
    default:
      return pieces;
  }
}

async function* corrupted(pieces: AsyncIterable<Buffer>, atByte: number): AsyncIterable<Buffer> {
  let passed = 0;
  for await (const piece of pieces) {
    const at = atByte - passed;
    passed += piece.length;
    if (at < 0 || at >= piece.length) {
      yield piece;
      continue;
    }
    const copy = Buffer.from(piece);
    copy.writeUInt8(copy.readUInt8(at) ^ 1, at);
    yield copy;
  }
}

async function* extended(pieces: AsyncIterable<Buffer>, bytes: number): AsyncIterable<Buffer> {
  yield* pieces;
  yield Buffer.alloc(bytes);
}

async function* slowed(pieces: AsyncIterable<Buffer>, bytesPerSecond: number): AsyncIterable<Buffer> {
  const tickBytes = Math.max(1, Math.round((bytesPerSecond * SLOW_TICK_MS) / 1000));
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; at += tickBytes) {
      yield piece.subarray(at, at + tickBytes);
      await delay(SLOW_TICK_MS, undefined, { ref: false });
    }
  }
}

/** One range of RFC 9110, 14.1.2; several, or one that makes no sense, are ignored as the RFC allows. */
function parseRange(
  header: string | undefined,
  sizeBytes: number,
): { start: number; end: number } | 'unsatisfiable' | undefined {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  const [first, last] = [match?.[1] ?? '', match?.[2] ?? ''];
  if (match === null || (first === '' && last === '')) return undefined;
  if (first === '') return { start: Math.max(0, sizeBytes - Number(last)), end: sizeBytes };
  const start = Number(first);
  const end = last === '' ? sizeBytes : Math.min(Number(last) + 1, sizeBytes);
  if (last !== '' && Number(last) < start) return undefined;
  return start >= sizeBytes ? 'unsatisfiable' : { start, end };
}

/** Resolves once the bytes were handed to the kernel: true, or false if the connection is gone. */
function write(response: ServerResponse, bytes: Buffer): Promise<boolean> {
  if (response.destroyed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const onClose = (): void => resolve(false);
    response.once('close', onClose);
    response.write(bytes, (error) => {
      response.off('close', onClose);
      resolve(error === null || error === undefined);
    });
  });
}
