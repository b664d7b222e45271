/**
 * The command line: names, flags and exit codes are a contract (0 done, 1 failed, 2 wrong usage). Each command's code is loaded
 * only when it is called, so that `tmaxfs status` does not pay for what `mount` needs.
 */

import { dirname } from 'node:path';
import { Command, CommanderError, Option } from 'commander';
import { SERVED_ARCHITECTURES } from '../blobs/architecture-gate.js';
import { defaultLogFile } from '../daemon/log-place.js';
import { DRIVERS, defaultThreads, isYes, LOG_LEVELS } from '../daemon/settings.js';
import { TmaxError, wordsOf } from '../errors.js';
import { VERIFY_LEVELS } from '../verify/verdict.js';
import { version } from '../version.js';
import { endProcess, endWhenNobodyReads } from './process-end.js';
import { printable } from './table.js';

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;
/** The one flag that is on by default, for root. */
const ALLOW_OTHER = '--allow-other';

/** Runs one command line, and ends the process with its exit code. `argv` as in `process.argv`. */
export async function main(argv: readonly string[]): Promise<void> {
  endWhenNobodyReads();
  try {
    await program().parseAsync([...argv]);
  } catch (error) {
    process.exitCode = exitCodeOf(error);
    // Commander has written its own words already.
    if (!(error instanceof CommanderError)) process.stderr.write(`tmaxfs: ${printable(wordsOf(error))}\n`);
  }
  await endProcess();
}

function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
  // An EINVAL of anything else is not the user's.
  const isUsage =
    error instanceof TmaxError && error.errno === 'EINVAL' && ['cli', 'settings'].includes(error.source ?? '');
  return isUsage ? EXIT_USAGE : EXIT_FAILED;
}

function program(): Command {
  const tmaxfs = new Command('tmaxfs')
    .description('Mounts a pool of Apptainer images: fetched on open, proven before exposure, cached on this disk.')
    .version(version)
    .exitOverride()
    .showHelpAfterError('(run with --help for the options)');

  tmaxfs
    .command('mount')
    .description('mount a pool; returns when its tree is readable')
    .argument('<mountpoint>', 'an empty folder')
    .addOption(repositoryOption())
    .addOption(revisionOption())
    .addOption(cacheDirectoryOption())
    .addOption(
      option('--cache-size <size>', 'most that the cache may hold, bytes or share of the disk').default('200G'),
    )
    .addOption(option('--reserve-free <size>', 'what the cache leaves free on its disk').default('5%'))
    .addOption(
      option('--verify <level>', 'what is proven before an image can be seen')
        .choices(VERIFY_LEVELS)
        .default('structure'),
    )
    .addOption(option('--verify-threads <number>', 'threads that prove images').default(String(defaultThreads())))
    .addOption(
      option('--arch <which>', 'serve images for any machine, or refuse those that are not for this host')
        .choices(SERVED_ARCHITECTURES)
        .default('any'),
    )
    .addOption(option('--scrub <period>', 'hash every idle image once in that time, or "off"').default('30d'))
    .addOption(option('--open-timeout <duration>', 'how long an open waits for its image').default('540'))
    .addOption(option('--connections <number>', 'connections that one image may come over').default('4'))
    .addOption(option('--max-fetches <number>', 'images fetched at one time').default('8'))
    .addOption(option('--connect-timeout <duration>', 'longest wait for a connection').default('10'))
    .addOption(
      option('--first-byte-timeout <duration>', 'longest wait for an answer (default: HF_HUB_ETAG_TIMEOUT, or 30)'),
    )
    .addOption(
      option('--idle-timeout <duration>', 'longest silence within a body (default: HF_HUB_DOWNLOAD_TIMEOUT, or 20)'),
    )
    .addOption(
      option('--min-speed <size>', 'bytes a second below which a connection is given up; 0: never').default('16K'),
    )
    .addOption(option('--follow <period>', 'how often a branch or tag is resolved anew, or "off" (default: off)'))
    .addOption(option('--driver <name>', 'how the kernel is spoken to').choices(DRIVERS).default('auto'))
    .addOption(flag(ALLOW_OTHER, 'let other users in').default(process.getuid?.() === 0, 'yes for root, else no'))
    .addOption(flag('--no-allow-other', 'keep other users out'))
    .addOption(option('--uid <number>', 'owner shown for every file (default: this user)'))
    .addOption(option('--gid <number>', 'group shown for every file (default: this group)'))
    .addOption(flag('--offline', 'serve what is on this disk, ask no network').default(false))
    .addOption(flag('--foreground', 'stay here and log to standard error').default(false))
    .addOption(
      option(
        '--log-file <file>',
        `log into a file, rolled by size (default in the background: ${dirname(defaultLogFile('/x', process.env))}/<mount point>.log, and "tmaxfs status" shows it)`,
      ),
    )
    .addOption(option('--log-level <level>', 'least level that is logged').choices(LOG_LEVELS).default('info'))
    .action(async (mountpoint: string, options) =>
      (await import('./mount.js')).mount({ ...options, mountpoint }, argvTail()),
    );

  tmaxfs
    .command('unmount')
    .description('unmount and end the daemon')
    .argument('<mountpoint>')
    .addOption(flag('--lazy', 'detach now, even if busy; files that are open go on working').default(false))
    .action(async (mountpoint: string, options) => (await import('./unmount.js')).unmountCommand(mountpoint, options));

  tmaxfs
    .command('status')
    .description('what a daemon is doing')
    .argument('[mountpoint]', 'may be left out where there is one')
    .option('--json', 'print the document, stable and in full', false)
    .option('--watch', 'draw it again every two seconds', false)
    .action(async (mountpoint: string | undefined, options) =>
      (await import('./status.js')).statusCommand(mountpoint, options),
    );

  tmaxfs
    .command('coverage')
    .description('which tasks can be opened; exit 1 unless every one can')
    .argument('[mountpoint]', 'may be left out where there is one')
    .option('--variant <name>', 'count only this one')
    .option('--json', 'print the document, stable and in full', false)
    .action(async (mountpoint: string | undefined, options) =>
      (await import('./coverage.js')).coverageCommand(mountpoint, options),
    );

  tmaxfs
    .command('verify')
    .description('prove again what is on this disk; exit 1 if any image fails')
    .option('--variant <name>', 'only the images of this variant')
    .option('--task <id>', 'only the image of this task')
    .addOption(new Option('--level <level>', 'how deep').choices(VERIFY_LEVELS).default('structure'))
    .option('--jsonl <file>', 'write one JSON line a task; "-" for standard output')
    .addOption(new Option('--jobs <number>', 'images proven at a time').default(String(defaultThreads())))
    .option(
      '--retry',
      'also forget which published images were refused, so that the next open fetches them anew',
      false,
    )
    .addOption(cacheDirectoryOption())
    .addOption(repositoryOption())
    .addOption(revisionOption())
    .action(async (options) => (await import('./verify.js')).verifyCommand(options));

  tmaxfs
    .command('prefetch')
    .description('fetch and prove images ahead of their first open; exit 1 if any fails')
    .argument('[mountpoint]', 'may be left out where there is one')
    .option('--variant <name>', 'all images of this variant')
    .option('--tasks <file>', 'the images of these tasks, one a line; "-" for standard input')
    .action(async (mountpoint: string | undefined, options) =>
      (await import('./prefetch.js')).prefetchCommand(mountpoint, options),
    );

  tmaxfs
    .command('reload')
    .description('look for a newer commit of the revision now, and show it')
    .argument('[mountpoint]', 'may be left out where there is one')
    .action(async (mountpoint: string | undefined) => (await import('./reload.js')).reloadCommand(mountpoint));

  tmaxfs
    .command('demo')
    .description('a small pool served on loopback, mounted, opened and verified, with words')
    .action(async () => (await import('./demo.js')).demoCommand());

  for (const command of tmaxfs.commands) command.exitOverride();
  return tmaxfs;
}

function repositoryOption(): Option {
  return option('--repo <owner/name>', 'dataset repository on the Hub').default('wAI-org/tmax-image-pool');
}

function revisionOption(): Option {
  return option('--revision <name>', 'branch, tag or commit').default('main');
}

function cacheDirectoryOption(): Option {
  return option('--cache-dir <folder>', 'where blobs are kept (default: $XDG_CACHE_HOME/tmaxfs)');
}

/** An option that the environment can set too: `--cache-dir` is TMAXFS_CACHE_DIR. A variable that is empty counts as unset. */
function option(flags: string, description: string): Option {
  const twin = twinOf(flags);
  if (process.env[twin]?.trim() === '') delete process.env[twin];
  return new Option(flags, description).env(twin);
}

/** A yes/no option. Its twin says so in a word: where that is no, it is left out, or its opposite is meant where it has one. */
function flag(flags: string, description: string): Option {
  const twin = twinOf(flags);
  const word = process.env[twin];
  // To commander a variable that is there at all says yes.
  if (word !== undefined && !isYes(word)) {
    delete process.env[twin];
    if (flags === ALLOW_OTHER && word.trim() !== '') process.env[twinOf(`--no-${ALLOW_OTHER.slice(2)}`)] = '1';
  }
  return new Option(flags, description).env(twin);
}

function twinOf(flags: string): string {
  const name = /^--([a-z-]+)/.exec(flags)?.[1] ?? '';
  return `TMAXFS_${name.replaceAll('-', '_').toUpperCase()}`;
}

/** The words after `mount`, to be handed to a daemon in the background unchanged. */
function argvTail(): readonly string[] {
  return process.argv.slice(3);
}
