/** Timers for any duration: Node's own fire at once where more than 24.8 days are asked of them. */

const MAX_TIMER_MS = 2 ** 31 - 1;

export interface LongTimer {
  cancel(): void;
}

/** Calls back once, after `durationMs`. Keeps the process alive, unless `ref` is false. */
export function startLongTimer(
  callback: () => void,
  durationMs: number,
  { ref = true, maxTimerMs = MAX_TIMER_MS }: { readonly ref?: boolean; readonly maxTimerMs?: number } = {},
): LongTimer {
  let timer: NodeJS.Timeout;
  const wait = (leftMs: number): void => {
    const partMs = Math.min(leftMs, maxTimerMs);
    timer = setTimeout(() => (leftMs > partMs ? wait(leftMs - partMs) : callback()), partMs);
    if (!ref) timer.unref();
  };
  wait(durationMs);
  return { cancel: () => clearTimeout(timer) };
}
