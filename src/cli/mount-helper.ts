/**
 * `mount.tmaxfs`, the helper that mount(8) calls for the type "tmaxfs", and so for lines of fstab:
 *
 *   wAI-org/tmax-image-pool /tmax tmaxfs _netdev,nofail,cache_dir=/x,cache_size=500G 0 0
 *
 * Every option of `tmaxfs mount` can be written as an option of the mount, by the same name with underscores. What has no
 * option (HF_TOKEN_PATH, proxies) is read from the file that the service of the same mount point has its variables from.
 * Source of the calling convention and of the exit codes: mount(8), EXTERNAL HELPERS and EXIT STATUS.
 */

import { parseArgs } from 'node:util';
import type { Command } from 'commander';
import { realMountpoint } from '../daemon/mountpoint.js';
import { poolsOfDevice } from '../daemon/pool-choices.js';
import { messageOf, systemErrorCode, TmaxError } from '../errors.js';
import { program, runToEnd } from './main.js';

const SETTINGS_FOLDER = '/etc/tmaxfs';
/** Where the service keeps its images too; a mount at boot has no home. */
const SYSTEM_CACHE = '/var/cache';
/** Of mount(8): "incorrect invocation or permissions", "mount failure". */
const EXIT_USAGE = 1;
const EXIT_MOUNT_FAILURE = 32;

/** Meant for mount(8) or systemd, or true of every mount of tmaxfs: it is read-only, without devices and set-uid programs. */
const WITHOUT_EFFECT = new Set(
  'rw ro defaults auto noauto exec nosuid nodev user nouser users owner group nofail _netdev atime noatime nodiratime relatime strictatime async'.split(
    ' ',
  ),
);
const FOR_OTHERS = /^(?:[xX]-|comment=|user=|uhelper=)/;
/** Named by the device, and never the end of a call of mount(8). */
const NOT_AN_OPTION = new Set(['--repo', '--pool', '--foreground']);

const CALLING =
  'mount.tmaxfs is called by mount(8), as "mount.tmaxfs owner/repo /tmax -o cache_dir=/x"; by hand take "tmaxfs mount --help"';

export interface HelperCall {
  /** A repository, or several pools, each with its name. */
  readonly repository: string;
  readonly mountpoint: string;
  readonly options: readonly string[];
  /** Everything but the mount itself. */
  readonly fake: boolean;
  /** Options that nobody knows are left out. */
  readonly sloppy: boolean;
  readonly verbose: boolean;
}

/** Runs as mount(8) expects it, and ends the process. `argv` as in `process.argv`. */
export async function mountHelper(argv: readonly string[]): Promise<void> {
  await runToEnd(async () => {
    const [node = '', , ...args] = argv;
    const call = parseHelperCall(args);
    readVariables(call.mountpoint);
    const words = [node, 'tmaxfs', 'mount', ...wordsOfMount(call, program())];
    if (call.verbose) process.stdout.write(`mount.tmaxfs: ${words.slice(1).join(' ')}\n`);
    if (!call.fake) await program(words).parseAsync(words);
  }, exitCodeOfMount);
}

/** Errors: EINVAL it is not how mount(8) calls a helper. */
export function parseHelperCall(args: readonly string[]): HelperCall {
  const { values, positionals } = parsed(args);
  const [repository, mountpoint, ...more] = positionals;
  if (repository === undefined || mountpoint === undefined || more.length > 0) throw usage(CALLING);
  const { fake = false, sloppy = false, verbose = false, namespace, options = [] } = values;
  if (namespace !== undefined) throw usage('mount namespaces (-N) are not supported: use nsenter');
  // In quotes, a comma belongs to the value: mount(8), "context".
  const list = options.flatMap((text) => text.match(/(?:"[^"]*"|[^,])+/g) ?? []);
  return {
    ...{ repository, mountpoint, fake, sloppy, verbose },
    options: list.map((option) => option.replaceAll('"', '')).filter((option) => option.trim() !== ''),
  };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        options: { type: 'string', short: 'o', multiple: true },
        type: { type: 'string', short: 't' },
        namespace: { type: 'string', short: 'N' },
        fake: { type: 'boolean', short: 'f' },
        'no-mtab': { type: 'boolean', short: 'n' },
        sloppy: { type: 'boolean', short: 's' },
        verbose: { type: 'boolean', short: 'v' },
      },
    });
  } catch (cause) {
    const [words = ''] = messageOf(cause).split('. ');
    throw usage(`${words}; ${CALLING}`, cause);
  }
}

/** The words of `tmaxfs mount`, as `tmaxfs` defines it. Errors: EINVAL naming the option. */
export function wordsOfMount({ repository, mountpoint, options, sloppy }: HelperCall, tmaxfs: Command): string[] {
  const known = tmaxfs.commands.find((command) => command.name() === 'mount')?.options ?? [];
  const flags = options.flatMap((written) => {
    if (WITHOUT_EFFECT.has(written) || FOR_OTHERS.test(written)) return [];
    const equals = written.indexOf('=');
    const name = equals < 0 ? written : written.slice(0, equals);
    const long = `--${name.replaceAll('_', '-')}`;
    const option = known.find((one) => one.long === long && !NOT_AN_OPTION.has(long));
    if (option === undefined) {
      if (sloppy) return [];
      throw usage(`"${name}" is no option of this mount; those of "tmaxfs mount --help" are, as cache_dir=/x`);
    }
    if (option.required !== equals >= 0) {
      throw usage(option.required ? `"${name}" takes a value: ${name}=…` : `"${name}" takes no value`);
    }
    return option.required ? [`${long}=${written.slice(equals + 1)}`] : [long];
  });
  const pools = poolsOfDevice(repository);
  const places = pools.length === 0 ? [`--repo=${repository}`] : pools.map((pool) => `--pool=${pool}`);
  return [...places, ...flags, '--', mountpoint];
}

/** What the environment has already wins. Errors: EACCES, … the file is there and can't be read. */
function readVariables(mountpoint: string): void {
  const path = `${SETTINGS_FOLDER}${realMountpoint(mountpoint)}.env`;
  try {
    process.loadEnvFile(path);
  } catch (cause) {
    const code = systemErrorCode(cause);
    if (code !== 'ENOENT') {
      throw new TmaxError('EACCES', `${path} can't be read (${code ?? messageOf(cause)})`, { cause, source: 'daemon' });
    }
  }
  if (process.geteuid?.() === 0) process.env['XDG_CACHE_HOME'] ||= SYSTEM_CACHE;
}

function exitCodeOfMount(exitCode: number): number {
  if (exitCode === 0) return 0;
  return exitCode === 2 ? EXIT_USAGE : EXIT_MOUNT_FAILURE;
}

function usage(message: string, cause?: unknown): TmaxError {
  return new TmaxError('EINVAL', message, { cause, source: 'cli' });
}
