/**
 * `tmaxfs demo`: the main job on one screen. A faithful Hub on loopback serves three small real images; the pool is
 * mounted with the ordinary commands on a folder of its own, looked at, opened, proven, and taken away again.
 *
 * This process serves the Hub, so it must never block on the mount: everything on it is asynchronous or in a child.
 */

import { createHash } from 'node:crypto';
import { access, constants, mkdir, mkdtemp, open, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import { formatBytes } from '../daemon/amount.js';
import { demoPool } from '../demo/demo-pool.js';
import { FakeHub } from '../demo/fake-hub.js';
import { errnoNumber, messageOf, systemErrorCode, TmaxError } from '../errors.js';
import { topMountAt } from '../fuse/mount-table.js';
import { packageRoot } from '../version.js';
import { onLostOutput } from './process-end.js';

/** Each command of the demo takes a second or two; one that takes this long hangs. */
const COMMAND_TIMEOUT_MS = 60_000;

const EXECUTABLE = fileURLToPath(new URL('bin/tmaxfs.js', packageRoot));

interface Stage {
  readonly hub: FakeHub;
  readonly mountpoint: string;
  readonly tmaxfs: (...args: string[]) => Promise<string>;
  /** Ends what runs in children. */
  readonly signal: AbortSignal;
}

/**
 * Nothing is left behind, also where it is ended by a signal, or by a reader that goes away.
 * Errors: ENOTSUP no FUSE here; EINTR ended; any that shows that the product is broken.
 */
export async function demoCommand(): Promise<void> {
  await requireFuse();
  const folder = await mkdtemp(join(tmpdir(), 'tmaxfs-demo-'));
  const mountpoint = join(folder, 'tmax');
  await mkdir(mountpoint);
  const repository = await demoPool();
  const hub = await FakeHub.start({ repositories: [repository.served] });
  const ending = new AbortController();
  const commands = new Commands({ folder, endpoint: hub.endpoint, signal: ending.signal });
  const stage = { hub, mountpoint, tmaxfs: commands.run.bind(commands), signal: ending.signal };
  try {
    await Promise.race([calledOff(), perform(stage, folder, repository)]);
  } finally {
    ending.abort();
    await commands.takeAway(mountpoint);
    await hub.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Resolves where nobody reads any more. Errors: EINTR a signal. */
function calledOff(): Promise<void> {
  return new Promise((resolve, reject) => {
    onLostOutput(() => resolve());
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => reject(new TmaxError('EINTR', `${signal}: nothing is left behind`, { source: 'cli' })));
    }
  });
}

type Repository = Awaited<ReturnType<typeof demoPool>>;

async function perform(stage: Stage, folder: string, repository: Repository): Promise<void> {
  const { hub, mountpoint, tmaxfs } = stage;
  say(`A small pool of real Apptainer images is served by a Hub on this machine, ${hub.endpoint}.`);
  say(`"." stands for ${folder}, which is removed at the end.`);
  step('Mount it: nothing is downloaded but the list of tasks.');
  const places = ['--cache-dir', join(folder, 'cache'), '--log-file', join(folder, 'log')];
  say(await tmaxfs('mount', mountpoint, '--repo', repository.served.name, ...places));
  await show(stage, repository);
  step('Unmount; the daemon ends.');
  say(await tmaxfs('unmount', mountpoint));
  say('Done: nothing is left behind. To mount the real pool: tmaxfs mount /tmax   (see README.md)');
}

async function show({ hub, mountpoint, tmaxfs, signal }: Stage, { tasks }: Repository): Promise<void> {
  step('Look around: every task is there, with its true size.');
  for (const view of await readdir(mountpoint)) {
    say(`${view}/`);
    for (const name of await readdir(join(mountpoint, view))) {
      const { size } = await stat(join(mountpoint, view, name));
      say(`  ${name}  ${formatBytes(size)}`);
    }
  }
  say(`Bytes of images fetched so far: ${bytesServed(hub)}.`);

  const sound = join(mountpoint, tasks.sound.name);
  step(
    `Open ${tasks.sound.name}: it is fetched, proven (size, sha256, SIF, squashfs), cached, and only then readable.`,
  );
  await openAndCompare(sound, tasks.sound.sha256, hub);
  say('Once more:');
  await openAndCompare(sound, tasks.sound.sha256, hub);

  step(
    `Open ${tasks.interrupted.name}, while the network cuts the connection half-way: the fetch goes on where it was.`,
  );
  hub.fault({
    server: 'cdn',
    path: tasks.interrupted.path,
    fault: { kind: 'cut', afterBytes: tasks.interrupted.sizeBytes / 2 },
  });
  await openAndCompare(join(mountpoint, tasks.interrupted.name), tasks.interrupted.sha256, hub);

  step(`Open ${tasks.damaged.name}, which was published broken: its size and sha256 agree, its file system is gone.`);
  say(`refused with ${await refusal(join(mountpoint, tasks.damaged.name))}; not one byte of it could be read.`);

  await runInApptainer(sound, signal);
  step('What the daemon says of itself:');
  say(await tmaxfs('status', mountpoint));
  step('Which tasks can be opened, counted against the map (exit code 1: one of them can not):');
  say(await tmaxfs('coverage', mountpoint));
}

async function openAndCompare(path: string, sha256: string, hub: FakeHub): Promise<void> {
  const servedBefore = bytesServed(hub);
  const startedAtMs = performance.now();
  const content = await readFile(path);
  const milliseconds = Math.round(performance.now() - startedAtMs);
  if (createHash('sha256').update(content).digest('hex') !== sha256) {
    throw new TmaxError('EIO', `${path} reads differently from what the Hub serves: please report this`, {
      source: 'demo',
    });
  }
  const fetched = bytesServed(hub) - servedBefore;
  say(
    `read ${formatBytes(content.length)} in ${milliseconds} ms, ${fetched > 0 ? `${formatBytes(fetched)} of it over the network` : 'all from the cache'}; byte for byte what was published.`,
  );
}

/** The errno with which an open is refused. Errors: EIO where it is not refused. */
async function refusal(path: string): Promise<string> {
  try {
    const file = await open(path);
    await file.close();
  } catch (error) {
    // Node has no name of its own for this one.
    const isBadMessage = error instanceof Error && 'errno' in error && error.errno === -errnoNumber('EBADMSG');
    return isBadMessage ? 'EBADMSG (Bad message)' : (systemErrorCode(error) ?? messageOf(error));
  }
  throw new TmaxError('EIO', `${path} is broken and could be opened: please report this`, { source: 'demo' });
}

async function runInApptainer(image: string, cancelSignal: AbortSignal): Promise<void> {
  const version = await execa('apptainer', ['--version'], { reject: false, timeout: COMMAND_TIMEOUT_MS });
  if (version.failed) {
    say(
      '\n(apptainer is not installed here: with it, "apptainer exec <mountpoint>/<variant>/<task>.sif ..." is all there is to do.)',
    );
    return;
  }
  step('Run it: apptainer exec ... echo');
  const run = await execa('apptainer', ['exec', image, '/bin/busybox', 'echo', 'hello from inside the image'], {
    reject: false,
    timeout: COMMAND_TIMEOUT_MS,
    cancelSignal,
  });
  say(run.failed ? `apptainer could not run it here: ${run.stderr}` : run.stdout);
}

/** Bytes of images that have left the Hub's storage. */
function bytesServed(hub: FakeHub): number {
  return hub.requests.filter(({ server }) => server === 'cdn').reduce((sum, { bytesSent }) => sum + bytesSent, 0);
}

async function requireFuse(): Promise<void> {
  try {
    await access('/dev/fuse', constants.R_OK | constants.W_OK);
  } catch (cause) {
    const words = 'this machine has no usable /dev/fuse, so nothing can be mounted here';
    const advice =
      'load the module (modprobe fuse); in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN';
    throw new TmaxError('ENOTSUP', `${words}; ${advice}`, { cause, source: 'demo' });
  }
}

/** This very package's commands, away from whatever the user's environment says of the real Hub. */
class Commands {
  readonly #folder: string;
  readonly #signal: AbortSignal;
  readonly #environment: Readonly<Record<string, string | undefined>>;
  /** Resolves when no command runs. */
  #idle: Promise<unknown> = Promise.resolve();

  constructor({ folder, endpoint, signal }: { folder: string; endpoint: string; signal: AbortSignal }) {
    this.#folder = folder;
    this.#signal = signal;
    const own = Object.entries(process.env).filter(
      ([name]) => !/^(hf_|hugging|tmaxfs_|https?_proxy|no_proxy|ssl_cert)/i.test(name),
    );
    this.#environment = { ...Object.fromEntries(own), HF_ENDPOINT: endpoint, HF_HOME: join(folder, 'hf') };
  }

  /** Shows a command, and what it says. */
  async run(...args: string[]): Promise<string> {
    process.stdout.write(`  $ tmaxfs ${args.join(' ').replaceAll(this.#folder, '.')}\n`);
    const running = this.#start(args, { cancelSignal: this.#signal });
    this.#idle = running;
    const { stdout, stderr, exitCode } = await running;
    // Coverage has found the broken image.
    const isDone = exitCode === 0 || (args[0] === 'coverage' && stdout !== '');
    if (!isDone) throw new TmaxError('EIO', `tmaxfs ${args[0]} failed: ${stderr || stdout}`, { source: 'demo' });
    return stdout.replaceAll(this.#folder, '.');
  }

  /** Once no command runs any more: whatever is mounted, out of the tree. */
  async takeAway(mountpoint: string): Promise<void> {
    await this.#idle;
    if (topMountAt(mountpoint) !== undefined) await this.#start(['unmount', mountpoint, '--lazy'], {});
  }

  #start(args: readonly string[], options: { readonly cancelSignal?: AbortSignal }) {
    return execa(process.execPath, [EXECUTABLE, ...args], {
      env: this.#environment,
      extendEnv: false,
      reject: false,
      // A group of its own: who ends the demo leaves it to the demo to end this.
      detached: true,
      stdin: 'ignore',
      timeout: COMMAND_TIMEOUT_MS,
      ...options,
    });
  }
}

let steps = 0;

function step(words: string): void {
  steps += 1;
  process.stdout.write(`\n${steps}. ${words}\n`);
}

function say(words: string): void {
  if (words === '') return;
  process.stdout.write(`${words.replace(/^(?!$)/gm, '  ')}\n`);
}
