/** Who waits in an open, by the names of their programs: what an operator looks for first. */

import { readFile } from 'node:fs/promises';
import type { WaitingOpen } from '../filesystem/pool-file-system.js';

export interface WaitingCaller {
  /** Of the thread; 0 where the caller is in a pid namespace that can't be seen. */
  readonly pid: number;
  /** As in /proc/<pid>/comm: up to 15 bytes that the program itself has chosen. Null where it can't be told. */
  readonly command: string | null;
  /** What it waits for, as "variant/task.sif". */
  readonly name: string;
  readonly seconds: number;
}

/** Further ones are without a name. */
const MAX_NAMED = 256;

/** In the order in which they came. */
export async function nameCallers(
  opens: readonly WaitingOpen[],
  nowMs = Date.now(),
): Promise<readonly WaitingCaller[]> {
  return Promise.all(
    opens.map(async ({ pid, name, sinceMs }, index) => ({
      pid,
      command: index < MAX_NAMED && pid > 0 ? await commandOf(pid) : null,
      name,
      seconds: Math.max(0, Math.round((nowMs - sinceMs) / 1000)),
    })),
  );
}

async function commandOf(pid: number): Promise<string | null> {
  // It may have ended.
  const text = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => null);
  return text?.trimEnd() ?? null;
}
