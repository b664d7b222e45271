/**
 * `tmaxfs seed`: fills a shared directory or a registry, without a mount. It works beside any daemon on the same cache directory,
 * and on several nodes at one time. Ending it ends the fetching; run again, it goes on.
 */

import { pino } from 'pino';
import { counted } from '../counted.js';
import { formatBytes } from '../daemon/amount.js';
import { seedDestination } from '../daemon/seeding.js';
import { type MountWords, readSettings } from '../daemon/settings.js';
import { parseDestination } from '../daemon/source-choices.js';
import { TmaxError } from '../errors.js';
import { readTaskList } from './task-list.js';
import { asCalledOff, transferDisplay } from './transfer-display.js';

export interface SeedCommandOptions extends Omit<MountWords, 'mountpoint' | 'publish'> {
  readonly to: string;
  readonly variant?: string;
  /** A file with one task a line, "-" for standard input. */
  readonly tasks?: string;
}

/** Sets exit code 1 where anything failed. Errors: EINVAL usage; those of `seedDestination`; EINTR. */
export async function seedCommand(options: SeedCommandOptions): Promise<void> {
  const { variant, tasks: file } = options;
  if (variant === undefined && file === undefined) {
    const words = 'say what is to be brought: --variant NAME, --tasks FILE, or --tasks - for standard input';
    throw new TmaxError('EINVAL', words, { source: 'cli' });
  }
  const to = parseDestination(options.to, '--to');
  const settings = readSettings({ ...options, mountpoint: '/' }, process.env);
  const tasks = file === undefined ? undefined : await readTaskList(file);
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => controller.abort());
  const display = transferDisplay();
  try {
    const result = await seedDestination(settings, {
      to,
      selection: { variant, tasks },
      signal: controller.signal,
      // What fails is told below, once.
      log: pino({ level: 'silent' }),
      onProgress: (progress) => display.show(progress),
      onFailure: (failure) => {
        const { variant: named, task, path, errno, message } = failure;
        display.tell(`failed: ${named}/${task} (${path}): ${errno}: ${message}`);
      },
    });
    for (const { name, reason } of result.unknown) display.tell(`failed: ${name}: ${reason}`);
    display.close();
    const { blobs, readyBlobs, writtenBlobs, bytes, readyBytes } = result;
    const failures = result.failedBlobs + result.unknown.length;
    const size = `${formatBytes(readyBytes)} of ${formatBytes(bytes)}`;
    const words = `${readyBlobs.toLocaleString('en-US')} of ${counted(blobs, 'image')} at ${options.to} (${size}), ${writtenBlobs} of them written now`;
    process.stdout.write(`${words}${failures === 0 ? '' : `; ${failures} failed`}\n`);
    if (failures > 0) process.exitCode = 1;
  } catch (error) {
    display.close();
    throw asCalledOff(error, controller.signal);
  }
}
