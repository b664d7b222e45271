/** INIT: what the kernel offers, what this side asks for, what both then speak. Pure. */

import { TmaxError } from '../../errors.js';
import { InitFlag, OLDEST_PROTOCOL_MINOR, PROTOCOL_MAJOR, PROTOCOL_MINOR } from './constants.js';
import { structReply } from './replies.js';
import { decodeBody, type Request } from './requests.js';
import { InitIn, InitInExtension, InitOut } from './structs.js';

/** The largest READ: 256 pages of 4 KiB, the kernel's own limit for an ordinary user. */
export const MAX_READ_BYTES = 1024 * 1024;
const MAX_PAGES = 256;
/** The smallest that the kernel accepts: nothing is ever written. */
const MAX_WRITE_BYTES = 4096;
/** Requests that the kernel may have under way without a caller waiting (readahead, RELEASE); it slows down at the second. */
const MAX_BACKGROUND = 64;
const CONGESTION_THRESHOLD = 48;

/**
 * How deep file systems may stack below this one: 1 means that the cache lies on an ordinary file system, and leaves
 * room for one overlay on top of this mount (the kernel allows 2 in all). A cache on an overlay needs 2, and then
 * nothing may stack on this mount, which containers do; there the kernel refuses the backing file with ELOOP, and
 * reads are relayed.
 */
const MAX_STACK_DEPTH = 1;

const WANTED =
  InitFlag.ASYNC_READ |
  InitFlag.EXPORT_SUPPORT |
  InitFlag.DO_READDIRPLUS |
  InitFlag.READDIRPLUS_AUTO |
  InitFlag.ASYNC_DIO |
  InitFlag.PARALLEL_DIROPS |
  InitFlag.MAX_PAGES |
  InitFlag.INIT_EXT;

/** What both sides agreed on. */
export interface Negotiated {
  readonly minor: number;
  readonly passthrough: boolean;
}

export interface NegotiationResult {
  readonly reply: Buffer;
  /** Undefined if the kernel speaks a newer major version: it will ask again with this one. */
  readonly negotiated: Negotiated | undefined;
}

/** Answers an INIT request. Errors: ENOTSUP the kernel's protocol is older than 7.23. */
export function negotiate(request: Request, options: { readonly passthrough: boolean }): NegotiationResult {
  const offer = decodeBody(request, InitIn);
  if (offer.major > PROTOCOL_MAJOR) {
    const reply = structReply(request.unique, InitOut, { major: PROTOCOL_MAJOR, minor: PROTOCOL_MINOR });
    return { reply, negotiated: undefined };
  }
  if (offer.major < PROTOCOL_MAJOR || offer.minor < OLDEST_PROTOCOL_MINOR) {
    throw new TmaxError(
      'ENOTSUP',
      `the kernel speaks FUSE ${offer.major}.${offer.minor}, but 7.${OLDEST_PROTOCOL_MINOR} (Linux 3.15) is the oldest that is known here; use a newer kernel`,
      { source: 'kernel', level: 'error' },
    );
  }
  const flags = offeredFlags(request, offer.flags) & (options.passthrough ? WANTED | InitFlag.PASSTHROUGH : WANTED);
  const passthrough = (flags & InitFlag.PASSTHROUGH) !== 0n;
  const negotiated = { minor: Math.min(offer.minor, PROTOCOL_MINOR), passthrough };
  const reply = structReply(request.unique, InitOut, {
    major: PROTOCOL_MAJOR,
    minor: negotiated.minor,
    maxReadahead: offer.maxReadahead,
    flags: Number(BigInt.asUintN(32, flags)),
    flags2: Number(flags >> 32n),
    maxBackground: MAX_BACKGROUND,
    congestionThreshold: CONGESTION_THRESHOLD,
    maxWrite: MAX_WRITE_BYTES,
    timeGranularityNs: 1,
    maxPages: MAX_PAGES,
    maxStackDepth: passthrough ? MAX_STACK_DEPTH : 0,
  });
  return { reply, negotiated };
}

/** The upper half of the flags is there only if the lower half says so. */
function offeredFlags(request: Request, lower: number): bigint {
  const flags = BigInt(lower);
  if ((flags & InitFlag.INIT_EXT) === 0n) return flags;
  const { flags2 } = InitInExtension.read(request.body, InitIn.size);
  return flags | (BigInt(flags2) << 32n);
}
