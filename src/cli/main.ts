/**
 * The command line: names, flags and exit codes are a contract (0 done, 1 failed, 2 wrong usage). Each command's code is loaded
 * only when it is called, so that `tmaxfs status` does not pay for what `mount` needs.
 */

import { Command, CommanderError } from 'commander';
import { TmaxError, wordsOf } from '../errors.js';
import { version } from '../version.js';
import { defineCache } from './define-cache.js';
import { defineCompletion } from './define-completion.js';
import { defineDatasets } from './define-datasets.js';
import { defineDiagnosis } from './define-diagnosis.js';
import { defineImages } from './define-images.js';
import { defineMount } from './define-mount.js';
import { defineObservation } from './define-observation.js';
import { endProcess, endWhenNobodyReads } from './process-end.js';
import { printable } from './table.js';

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

/** Runs one command line, and ends the process with its exit code. `argv` as in `process.argv`. */
export async function main(argv: readonly string[]): Promise<void> {
  await runToEnd(() => program(argv).parseAsync([...argv]));
}

/** Runs `action`, says what it throws, and ends the process. `translate`: for a caller that has other exit codes. */
export async function runToEnd(
  action: () => Promise<unknown>,
  translate: (exitCode: number) => number = (exitCode) => exitCode,
): Promise<void> {
  endWhenNobodyReads();
  try {
    await action();
  } catch (error) {
    process.exitCode = exitCodeOf(error);
    // Commander has written its own words already.
    if (!(error instanceof CommanderError)) process.stderr.write(`tmaxfs: ${printable(wordsOf(error))}\n`);
  }
  process.exitCode = translate(Number(process.exitCode ?? 0));
  await endProcess();
}

function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
  // An EINVAL of anything else is not the user's.
  const isUsage =
    error instanceof TmaxError && error.errno === 'EINVAL' && ['cli', 'settings'].includes(error.source ?? '');
  return isUsage ? EXIT_USAGE : EXIT_FAILED;
}

/** All commands. `argv`: as in `process.argv`, where one of them is to be run. */
export function program(argv: readonly string[] = []): Command {
  const tmaxfs = new Command('tmaxfs')
    .description('Mounts a pool of Apptainer images: fetched on open, proven before exposure, cached on this disk.')
    .version(version)
    .exitOverride()
    .showHelpAfterError('(run with --help for the options)');

  defineMount(tmaxfs, argv);
  defineObservation(tmaxfs);
  defineImages(tmaxfs);
  defineCache(tmaxfs);
  defineDiagnosis(tmaxfs);
  defineDatasets(tmaxfs);
  tmaxfs
    .command('demo')
    .description('a small pool served on loopback, mounted, opened and verified, with words')
    .action(async () => (await import('./demo.js')).demoCommand());
  defineCompletion(tmaxfs);

  for (const command of tmaxfs.commands) command.exitOverride();
  return tmaxfs;
}
