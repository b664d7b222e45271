/**
 * Runs all checks at once, each with a deadline: one that hangs or fails is a finding itself, and holds up none of the others.
 */

import { messageOf } from '../errors.js';
import { error, type Finding, type Remark, warning } from './finding.js';
import type { Machine } from './machine.js';

export interface Check {
  /** Stable, as "cache-disk". */
  readonly name: string;
  /** `signal` is aborted at the deadline. */
  readonly look: (machine: Machine, signal: AbortSignal) => Promise<readonly Remark[]>;
}

/** Of the whole: the longest that anybody waits. Every check's own waits are shorter, and tell more when they end. */
export const EXAMINATION_LIMIT_MS = 12_000;

/** The findings in the order of the checks. */
export async function examine(
  machine: Machine,
  checks: readonly Check[],
  limitMs = EXAMINATION_LIMIT_MS,
): Promise<readonly Finding[]> {
  const found = await Promise.all(
    checks.map(async (check) =>
      (await lookAt(machine, check, limitMs)).map((remark) => ({ check: check.name, ...remark })),
    ),
  );
  return found.flat();
}

async function lookAt(machine: Machine, { name, look }: Check, limitMs: number): Promise<readonly Remark[]> {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<readonly Remark[]>((resolve) => {
    timer = setTimeout(() => {
      controller.abort();
      resolve([
        error(
          `looking at ${name} did not end within ${limitMs / 1000} s`,
          'whatever uses it will hang as well: a network disk or a server that does not answer',
          `look at it by hand; "dmesg | tail" names disks that hang`,
        ),
      ]);
    }, limitMs);
  });
  const looked = Promise.resolve()
    .then(() => look(machine, controller.signal))
    .catch((thrown: unknown) => [
      warning(`looking at ${name} failed: ${messageOf(thrown)}`, 'so nothing is known of it', null),
    ]);
  return Promise.race([looked, deadline]).finally(() => clearTimeout(timer));
}
