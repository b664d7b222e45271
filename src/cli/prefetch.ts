/** `tmaxfs prefetch`: has a daemon fetch many images ahead, and shows how far it is. Ending the command ends the fetching. */

import { SingleBar } from 'cli-progress';
import * as v from 'valibot';
import { formatBytes } from '../daemon/amount.js';
import { commandDaemon } from '../daemon/control-client.js';
import { TmaxError } from '../errors.js';
import { chooseMount } from './choose-mount.js';
import { readTaskList } from './task-list.js';

/** How often a line is written where nobody watches a terminal. */
const LINE_INTERVAL_MS = 10_000;

const progressShape = v.object({
  blobs: v.number(),
  readyBlobs: v.number(),
  failedBlobs: v.number(),
  bytes: v.number(),
  readyBytes: v.number(),
});
type Progress = v.InferOutput<typeof progressShape>;

const lineShape = v.variant('kind', [
  v.object({ kind: v.literal('progress'), ...progressShape.entries }),
  v.object({ kind: v.literal('failure'), name: v.string(), reason: v.string() }),
]);
const resultShape = v.object({ ...progressShape.entries, failures: v.number() });

export interface PrefetchCommandOptions {
  readonly variant?: string;
  /** A file with one task a line, "-" for standard input. */
  readonly tasks?: string;
}

/** Sets exit code 1 where anything failed. Errors: EINVAL usage; ENOSPC's words; those of `commandDaemon`; EINTR. */
export async function prefetchCommand(named: string | undefined, options: PrefetchCommandOptions): Promise<void> {
  const { variant, tasks: file } = options;
  if (variant === undefined && file === undefined) {
    throw new TmaxError('EINVAL', 'say what to fetch: --variant NAME, --tasks FILE, or --tasks - for standard input', {
      source: 'cli',
    });
  }
  const mountpoint = chooseMount(named);
  const tasks = file === undefined ? undefined : await readTaskList(file);
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => controller.abort());
  const display = process.stderr.isTTY ? new Bar() : new Lines();
  try {
    const onLine = (line: unknown): void => {
      const said = v.parse(lineShape, line);
      if (said.kind === 'progress') display.show(said);
      else display.tell(`failed: ${said.name}: ${said.reason}`);
    };
    const result = await commandDaemon(
      mountpoint,
      '/prefetch',
      { variant, tasks },
      { onLine, signal: controller.signal },
    );
    const { blobs, readyBlobs, bytes, readyBytes, failures } = v.parse(resultShape, result);
    display.close();
    const words = `${readyBlobs} of ${blobs} images are on disk and proven (${formatBytes(readyBytes)} of ${formatBytes(bytes)})`;
    process.stdout.write(`${words}${failures === 0 ? '' : `; ${failures} failed`}\n`);
    if (failures > 0) process.exitCode = 1;
  } catch (error) {
    display.close();
    if (!controller.signal.aborted) throw error;
    const words = 'ended before all was there; what has arrived stays: run it again to go on';
    throw new TmaxError('EINTR', words, { cause: error, source: 'cli' });
  }
}

/** On a terminal: a bar that is drawn over and over. */
class Bar {
  readonly #bar = new SingleBar({
    format: '{bar} {percentage}%  {ready} of {size}  {readyBlobs}/{blobs} images  {rate}/s  {eta_formatted} left',
    stream: process.stderr,
    hideCursor: false,
  });
  readonly #rate = new Rate();
  #isDrawn = false;

  show(progress: Progress): void {
    const { bytes, readyBytes } = progress;
    const words = {
      ...progress,
      ready: formatBytes(readyBytes),
      size: formatBytes(bytes),
      rate: formatBytes(this.#rate.bytesPerSecond(readyBytes)),
    };
    if (this.#isDrawn) this.#bar.update(readyBytes, words);
    else this.#bar.start(bytes, readyBytes, words);
    this.#isDrawn = true;
  }

  tell(line: string): void {
    process.stderr.write(`\r\u001b[K${line}\n`);
  }

  close(): void {
    this.#bar.stop();
  }
}

/** Into a file or a pipe: a line now and then. */
class Lines {
  readonly #rate = new Rate();
  #writtenAtMs = Number.NEGATIVE_INFINITY;

  show({ bytes, readyBytes, blobs, readyBlobs }: Progress): void {
    const now = performance.now();
    const bytesPerSecond = this.#rate.bytesPerSecond(readyBytes);
    if (now - this.#writtenAtMs < LINE_INTERVAL_MS) return;
    this.#writtenAtMs = now;
    const left = bytesPerSecond > 0 ? `${Math.round((bytes - readyBytes) / bytesPerSecond)} s left` : 'no estimate yet';
    const ready = `${formatBytes(readyBytes)} of ${formatBytes(bytes)}, ${readyBlobs}/${blobs} images`;
    this.tell(`${ready}, ${formatBytes(bytesPerSecond)}/s, ${left}`);
  }

  tell(line: string): void {
    process.stderr.write(`${line}\n`);
  }

  close(): void {}
}

/** Bytes a second since the first figure: what was there before has not been fetched. */
class Rate {
  #first: { readonly atMs: number; readonly bytes: number } | undefined;

  bytesPerSecond(bytes: number): number {
    const atMs = performance.now();
    this.#first ??= { atMs, bytes };
    const seconds = (atMs - this.#first.atMs) / 1000;
    return seconds > 0 ? Math.max(0, Math.round((bytes - this.#first.bytes) / seconds)) : 0;
  }
}
