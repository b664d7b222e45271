/**
 * How long a server asks to be left alone. Formats: `RateLimit` of draft-ietf-httpapi-ratelimit-headers, as the Hub
 * writes it (`"resolvers";r=0;t=55`: none left, 55 s to the next window), and `Retry-After` of RFC 9110, 10.2.3.
 */

import type { HttpReply } from './http-client.js';

/** In milliseconds, or undefined if the server says nothing intelligible. Unbounded: the caller has a limit. */
export function requestedPauseMs(reply: HttpReply, now = Date.now()): number | undefined {
  return fromRateLimit(reply.header('ratelimit')) ?? fromRetryAfter(reply.header('retry-after'), now);
}

function fromRateLimit(value: string | undefined): number | undefined {
  const used = (value ?? '').split(',').filter((limit) => parameter(limit, 'r') === 0);
  const seconds = used.map((limit) => parameter(limit, 't')).filter((one) => one !== undefined);
  // One second more than announced: windows are fixed, and clocks round.
  return seconds.length === 0 ? undefined : (Math.max(...seconds) + 1) * 1000;
}

/** What a window still allows, as `RateLimit` and `RateLimit-Policy` tell it; `name`: which of the server's limits. */
export interface LeftOver {
  readonly remaining: number;
  /** Of the whole window; undefined where it is not told. */
  readonly quota: number | undefined;
  readonly resetSeconds: number;
}

/** Undefined where the server says nothing of this limit. */
export function leftOver(reply: HttpReply, name: string): LeftOver | undefined {
  const entry = (header: string) =>
    (reply.header(header) ?? '').split(',').find((one) => one.includes(`"${name}"`)) ?? '';
  const [remaining, resetSeconds] = [parameter(entry('ratelimit'), 'r'), parameter(entry('ratelimit'), 't')];
  if (remaining === undefined || resetSeconds === undefined) return undefined;
  return { remaining, resetSeconds, quota: parameter(entry('ratelimit-policy'), 'q') };
}

function parameter(limit: string, name: string): number | undefined {
  const digits = new RegExp(`;\\s*${name}=(\\d{1,9})\\s*(?:;|$)`).exec(limit)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

function fromRetryAfter(value: string | undefined, now: number): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000;
  // Date.parse alone would find a date in almost any text.
  const date = /^[A-Z][a-z]{2}, .* GMT$/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
