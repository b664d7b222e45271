/**
 * `tmaxfs probe`: the whole way of a sandbox, once: the daemon is asked, one image is fetched and opened, and apptainer runs `true`
 * in it. Says each step with its time, and where one fails, which, why, and what to do.
 */

import { open } from 'node:fs/promises';
import { formatBytes, parseDurationMs } from '../daemon/amount.js';
import { askDaemon } from '../daemon/control-client.js';
import type { Status } from '../daemon/status.js';
import { runProgram } from '../doctor/program.js';
import { messageOf, TmaxError, wordsOf } from '../errors.js';
import { tmaxfsMounts } from '../fuse/mount-table.js';
import { errnoNameOf, readExtendedAttribute } from '../libc.js';
import { chooseMount } from './choose-mount.js';
import { within } from './deadline.js';
import { type MountedTask, namedTask, smallestTask } from './mounted-task.js';
import { printable } from './table.js';

/** Longer than the longest open of the default settings (--open-timeout), so that the errno comes from there. */
const OPEN_LIMIT_MS = 600_000;
/** Looking at the tree of a pool of 16,000 images takes seconds. */
const LOOK_LIMIT_MS = 60_000;
const RUNTIMES = ['apptainer', 'singularity'] as const;
const SHOWN_CHARACTERS = 600;
const HEADER_BYTES = 4096;
const READY = 'ready';

/** Sets exit code 1 where a step fails. Errors: those of choosing: ENOENT, EINVAL no such mount or task; ENOTCONN. */
export async function probeCommand(
  first: string | undefined,
  second: string | undefined,
  options: { readonly timeout: string },
): Promise<void> {
  const timeoutMs = parseDurationMs(options.timeout);
  const { mountpoint, task } = placeOf(first, second);
  const steps = new Steps();
  const status = await steps.step('daemon', async () => {
    const answer = (await askDaemon(mountpoint, '/status')) as Status;
    const served = answer.pools.map(({ repository, commit }) => `${repository} at ${commit.slice(0, 12)}`);
    return { value: answer, words: `pid ${answer.pid} serves ${served.join(', ')}` };
  });
  const image = await steps.step('choose', async () => {
    const chosen = await within(
      choose(mountpoint, task, status.offline),
      LOOK_LIMIT_MS,
      `${mountpoint} does not answer`,
    );
    return { value: chosen, words: chosenWords(chosen, task === undefined) };
  });
  try {
    if (image.state !== READY) {
      await steps.step('fetch', async () => {
        await openImage(image.path);
        return { value: undefined, words: `${formatBytes(image.sizeBytes)} fetched and proven` };
      });
    }
    await steps.step('open', async () => {
      await openImage(image.path);
      return { value: undefined, words: 'from the disk' };
    });
    await steps.step('exec', async () => ({ value: undefined, words: await execute(image.path, timeoutMs) }));
    process.stdout.write(printable(`sound: ${image.name} runs\n`));
  } catch (error) {
    if (!(error instanceof StepFailure)) throw error;
    process.exitCode = 1;
  }
}

/** One word may be a mount point, or a path below one. */
function placeOf(first: string | undefined, second: string | undefined): { mountpoint: string; task?: string } {
  const holder =
    first === undefined || second !== undefined
      ? undefined
      : tmaxfsMounts().findLast(({ mountpoint }) => first.startsWith(`${mountpoint}/`))?.mountpoint;
  if (holder !== undefined && first !== undefined && first.slice(holder.length + 1) !== '') {
    return { mountpoint: holder, task: first };
  }
  const mountpoint = chooseMount(first);
  return second === undefined ? { mountpoint } : { mountpoint, task: second };
}

function choose(mountpoint: string, task: string | undefined, isOffline: boolean): Promise<MountedTask> {
  return task === undefined ? smallestTask(mountpoint, { onDisk: isOffline }) : namedTask(mountpoint, task);
}

function chosenWords({ name, sizeBytes, state }: MountedTask, isSmallest: boolean): string {
  const which = isSmallest ? ', the smallest' : '';
  const where = state === READY ? 'on this disk already: nothing is fetched' : `${state}: it is fetched now`;
  return `${name}${which} (${formatBytes(sizeBytes)}), ${where}`;
}

/** Opens and reads the first bytes. Errors: those of open(2), explained. */
async function openImage(path: string): Promise<void> {
  const opened = open(path, 'r').then(async (file) => {
    try {
      await file.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
    } finally {
      await file.close();
    }
  });
  try {
    await within(opened, OPEN_LIMIT_MS, `the open did not end within ${OPEN_LIMIT_MS / 1000} s`);
  } catch (cause) {
    if (cause instanceof TmaxError) throw cause;
    const code = codeOf(cause);
    const reason = await readExtendedAttribute(path, 'user.tmaxfs.error').catch(() => undefined);
    const why = reason === undefined || reason.length === 0 ? '' : `: ${reason.toString('utf8')}`;
    throw new TmaxError('EIO', `open failed with ${code}${why}`, { cause, source: 'cli' });
  }
}

function codeOf(cause: unknown): string {
  const errno = cause instanceof Error && 'errno' in cause ? Number(cause.errno) : Number.NaN;
  return Number.isNaN(errno) ? messageOf(cause) : errnoNameOf(Math.abs(errno));
}

/** Runs `true`. Errors: ENOENT no apptainer; ETIMEDOUT; EIO with its words. */
async function execute(path: string, timeoutMs: number): Promise<string> {
  for (const runtime of RUNTIMES) {
    const command = `${runtime} exec ${path} true`;
    const { exitCode, stderr, isLate, isMissing } = await runProgram(runtime, ['exec', path, 'true'], { timeoutMs });
    if (isMissing) continue;
    if (exitCode === 0) return command;
    if (isLate) {
      const message = `${command} did not end within ${timeoutMs / 1000} s`;
      throw new TmaxError('ETIMEDOUT', message, { source: 'cli' });
    }
    const words = stderr.trim().slice(-SHOWN_CHARACTERS);
    const how = exitCode === undefined ? 'ended by a signal' : `exit code ${exitCode}`;
    throw new TmaxError('EIO', `${command} failed (${how})${words === '' ? '' : `:\n${words}`}`, { source: 'cli' });
  }
  const message =
    'apptainer is not installed: neither apptainer nor singularity is on the PATH. The image itself can be opened';
  throw new TmaxError('ENOENT', message, { source: 'cli' });
}

/** A step has failed, and that was said. */
class StepFailure extends Error {}

/** What to do where a step fails. */
const REMEDIES: Readonly<Record<string, string>> = {
  fetch: '"tmaxfs status" has the reason, and the log it names all attempts; then "tmaxfs doctor"',
  open: '"tmaxfs status" has the reason; then "tmaxfs doctor"',
  exec: '"tmaxfs doctor" looks at apptainer, user namespaces and who may open the mount',
};

class Steps {
  /** Does a step, and says how long it took. Errors: a `StepFailure` for the steps that have a remedy, else the step's own. */
  async step<Value>(name: string, work: () => Promise<{ value: Value; words: string }>): Promise<Value> {
    const startedAtMs = performance.now();
    const say = (words: string) => {
      const seconds = ((performance.now() - startedAtMs) / 1000).toFixed(2).padStart(7);
      process.stdout.write(printable(`${name.padEnd(6)} ${seconds} s  ${words}\n`));
    };
    try {
      const { value, words } = await work();
      say(words);
      return value;
    } catch (error) {
      const remedy = REMEDIES[name];
      if (remedy === undefined) throw error;
      say(`FAILED: ${wordsOf(error)}`);
      process.stdout.write(`do: ${remedy}\n`);
      throw new StepFailure();
    }
  }
}
