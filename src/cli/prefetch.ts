/** `tmaxfs prefetch`: has a daemon fetch many images ahead, and shows how far it is. Ending the command ends the fetching. */

import * as v from 'valibot';
import { counted } from '../counted.js';
import { formatBytes } from '../daemon/amount.js';
import { commandDaemon } from '../daemon/control-client.js';
import { TmaxError } from '../errors.js';
import { chooseMount } from './choose-mount.js';
import { readTaskList } from './task-list.js';
import { asCalledOff, transferDisplay } from './transfer-display.js';

const progressShape = v.object({
  blobs: v.number(),
  readyBlobs: v.number(),
  failedBlobs: v.number(),
  bytes: v.number(),
  readyBytes: v.number(),
});

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
  const display = transferDisplay();
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
    const words = `${readyBlobs.toLocaleString('en-US')} of ${counted(blobs, 'image')} on disk and proven (${formatBytes(readyBytes)} of ${formatBytes(bytes)})`;
    process.stdout.write(`${words}${failures === 0 ? '' : `; ${failures} failed`}\n`);
    if (failures > 0) process.exitCode = 1;
  } catch (error) {
    display.close();
    throw asCalledOff(error, controller.signal);
  }
}
