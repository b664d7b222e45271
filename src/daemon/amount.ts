/** Amounts as users write them: bytes ("200G", "64 MiB", "1048576"), shares ("5%"), durations ("540", "90s", "10m"). */

import { TmaxError } from '../errors.js';

/** A number of bytes, or a share of a disk to be taken once that disk is known. */
export type Amount = { readonly bytes: number } | { readonly percent: number };

// Storage is sold in powers of ten and measured in powers of two; like rclone, CVMFS and dd, a bare letter means the latter.
const UNITS: Readonly<Record<string, number>> = { '': 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40, P: 2 ** 50 };
const BYTES = /^(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?$/i;
const PERCENT = /^(\d+(?:\.\d+)?)\s*%$/;
const DURATION = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/;
const MILLISECONDS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

const SIZE_FORMS = 'write bytes, or 64M, 200G, 2T, or a share as 5%';

/** Errors: EINVAL naming the text and the forms that are understood. */
export function parseAmount(text: string): Amount {
  const share = PERCENT.exec(text.trim());
  if (share !== null) {
    const percent = Number(share[1]);
    if (percent <= 100) return { percent };
    throw new TmaxError('EINVAL', `"${text}" is a share above 100%: ${SIZE_FORMS}`, { source: 'settings' });
  }
  return { bytes: parseBytes(text) };
}

/** Errors: EINVAL. */
export function parseBytes(text: string): number {
  const match = BYTES.exec(text.trim());
  const bytes =
    match === null ? Number.NaN : Math.floor(Number(match[1]) * (UNITS[(match[2] ?? '').toUpperCase()] ?? Number.NaN));
  if (Number.isSafeInteger(bytes)) return bytes;
  throw new TmaxError('EINVAL', `"${text}" is no size: ${SIZE_FORMS}`, { source: 'settings' });
}

/** setTimeout can't wait longer than this, and would fire at once instead. */
const MAX_TIMER_MS = 2 ** 31 - 1;
const MAX_PERIOD_MS = 3650 * 86_400_000;

/** A time that is waited for. Seconds where no unit is given. Errors: EINVAL. */
export function parseDurationMs(text: string): number {
  return parseTimeMs(text, MAX_TIMER_MS, '500ms, 90s, 10m, 2h (24 days at most)');
}

/** A time that passes by the calendar, to be compared with dates and not given to a timer. Errors: EINVAL. */
export function parsePeriodMs(text: string): number {
  return parseTimeMs(text, MAX_PERIOD_MS, '90s, 12h, 30d (10 years at most)');
}

function parseTimeMs(text: string, maxMs: number, forms: string): number {
  const match = DURATION.exec(text.trim());
  const milliseconds =
    match === null ? Number.NaN : Math.round(Number(match[1]) * (MILLISECONDS[match[2] ?? 's'] ?? Number.NaN));
  if (milliseconds > 0 && milliseconds <= maxMs) return milliseconds;
  throw new TmaxError('EINVAL', `"${text}" is no duration: write seconds, or ${forms}`, { source: 'settings' });
}

export function bytesOf(amount: Amount, totalBytes: number): number {
  return 'bytes' in amount ? amount.bytes : Math.floor((totalBytes * amount.percent) / 100);
}

/** "1.5 GiB": for humans, three digits at least. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** "85 µs", "1.2 ms", "340 ms", "12.3 s", "4 min 10 s", "3 h 20 min", "2 d 5 h": for humans. */
export function formatMilliseconds(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (milliseconds < 0.9995) return `${Math.round(milliseconds * 1000)} µs`;
  if (milliseconds < 999.5) return `${milliseconds < 9.95 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const pair = (first: number, large: string, second: number, small: string) =>
    second === 0 ? `${first} ${large}` : `${first} ${large} ${second} ${small}`;
  if (whole < 3600) return pair(Math.floor(whole / 60), 'min', whole % 60, 's');
  const minutes = Math.round(whole / 60);
  if (minutes < 24 * 60) return pair(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
  const hours = Math.round(minutes / 60);
  return pair(Math.floor(hours / 24), 'd', hours % 24, 'h');
}
