/** What a look at this machine has found: the words of `tmaxfs doctor`, and the entries of its JSON document. */

export const LEVELS = ['ok', 'note', 'warning', 'error'] as const;
/** `note`: good to know; `warning`: will hurt some day, or some users; `error`: keeps a mount or its images from working. */
export type Level = (typeof LEVELS)[number];

export interface Finding {
  /** Stable name of what was looked at, as "cache-disk". */
  readonly check: string;
  readonly level: Level;
  readonly what: string;
  /** Why that matters; null where all is well. */
  readonly why: string | null;
  /** What to do, a command where there is one; null where nothing is to be done. */
  readonly remedy: string | null;
}

/** A finding without the name of its check, which its runner knows. */
export type Remark = Omit<Finding, 'check'>;

export function ok(what: string): Remark {
  return { level: 'ok', what, why: null, remedy: null };
}

export function note(what: string, why: string, remedy: string | null = null): Remark {
  return { level: 'note', what, why, remedy };
}

export function warning(what: string, why: string, remedy: string | null): Remark {
  return { level: 'warning', what, why, remedy };
}

export function error(what: string, why: string, remedy: string | null): Remark {
  return { level: 'error', what, why, remedy };
}
