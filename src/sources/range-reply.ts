/** Whether an answer to a Range request can hold bytes of the blob, and which. RFC 9110, 14.4 and 15.3.7. */

import { TransientFailure } from './failure.js';
import { type HttpReply, headerNumber } from './http-client.js';

export interface RangeRequest {
  /** Offsets in the whole file; `end` is not part of it. */
  readonly start: number;
  readonly end: number;
  readonly sizeBytes: number;
}

/**
 * How many bytes of the body come before the first that was asked for: 0, or `start` where the whole file is sent.
 * Errors: a `TransientFailure` with EBADMSG for everything that is not a 200 or 206 of this file.
 */
export function leadingBytes(reply: HttpReply, { start, end, sizeBytes }: RangeRequest, what: string): number {
  const encoding = reply.header('content-encoding') ?? 'identity';
  if (encoding !== 'identity') throw wrong(`${what} comes compressed (${quote(encoding)}), which was not asked for`);
  const length = headerNumber(reply, 'content-length');
  if (reply.status === 206) {
    const text = reply.header('content-range') ?? '';
    const [, first, last, total] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(text) ?? [];
    const fits =
      Number(first) === start &&
      Number(last) >= start &&
      Number(last) < end &&
      (total === '*' || Number(total) === sizeBytes);
    if (!fits) throw wrong(`${what}: asked for bytes ${start}-${end - 1}/${sizeBytes}, offered "${quote(text)}"`);
    const announced = Number(last) - start + 1;
    if ((length ?? announced) !== announced)
      throw wrong(`${what}: ${length} bytes announced for a range of ${announced}`);
    return 0;
  }
  if (isWebPage(reply)) throw wrong(`instead of ${what} comes a web page: is there a login page between?`);
  if ((length ?? sizeBytes) !== sizeBytes) throw wrong(`${what} has ${sizeBytes} bytes, offered are ${length}`);
  return start;
}

/** What a login page, or the error page of a proxy, comes as. */
export function isWebPage(reply: HttpReply): boolean {
  return /^text\/html\b/i.test(reply.header('content-type') ?? '');
}

function wrong(message: string): TransientFailure {
  return new TransientFailure('EBADMSG', message);
}

function quote(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 60);
}
