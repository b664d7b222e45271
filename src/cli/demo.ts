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
import { packageRoot } from '../version.js';

/** Each command of the demo takes a second or two; one that takes this long hangs. */
const COMMAND_TIMEOUT_MS = 60_000;

interface Stage {
  readonly hub: FakeHub;
  readonly mountpoint: string;
  readonly tmaxfs: (...args: string[]) => Promise<string>;
}

/** Errors: ENOTSUP no FUSE here; any that shows that the product is broken. Nothing is left behind. */
export async function demoCommand(): Promise<void> {
  await requireFuse();
  const folder = await mkdtemp(join(tmpdir(), 'tmaxfs-demo-'));
  const mountpoint = join(folder, 'tmax');
  await mkdir(mountpoint);
  const repository = await demoPool();
  const hub = await FakeHub.start({ repositories: [repository.served] });
  const tmaxfs = runner({ folder, endpoint: hub.endpoint });
  try {
    say(`A small pool of real Apptainer images is served by a Hub on this machine, ${hub.endpoint}.`);
    step('Mount it: nothing is downloaded but the list of tasks.');
    const mounting = [
      '--repo',
      repository.served.name,
      '--cache-dir',
      join(folder, 'cache'),
      '--log-file',
      join(folder, 'log'),
    ];
    say(await tmaxfs('mount', mountpoint, ...mounting));
    try {
      await show({ hub, mountpoint, tmaxfs }, repository);
    } finally {
      step('Unmount; the daemon ends.');
      say(await tmaxfs('unmount', mountpoint));
    }
    say('Done: nothing is left behind. To mount the real pool: tmaxfs mount /tmax   (see README.md)');
  } finally {
    await hub.close();
    await rm(folder, { recursive: true, force: true });
  }
}

async function show(
  { hub, mountpoint, tmaxfs }: Stage,
  repository: Awaited<ReturnType<typeof demoPool>>,
): Promise<void> {
  const { tasks } = repository;
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

  await runInApptainer(sound);
  step('What the daemon says of itself:');
  say(await tmaxfs('status', mountpoint));
  step('Which tasks can be opened, counted against the map:');
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

async function runInApptainer(image: string): Promise<void> {
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

/** Runs this very package's commands, showing each, away from whatever the user's environment says of the real Hub. */
function runner({ folder, endpoint }: { folder: string; endpoint: string }): Stage['tmaxfs'] {
  const executable = fileURLToPath(new URL('bin/tmaxfs.js', packageRoot));
  const environment = Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(hf_|hugging|tmaxfs_|https?_proxy|no_proxy|ssl_cert)/i.test(name),
    ),
  );
  return async (...args) => {
    process.stdout.write(`  $ tmaxfs ${args.join(' ').replaceAll(folder, '.')}\n`);
    const { stdout, stderr, exitCode } = await execa(process.execPath, [executable, ...args], {
      env: { ...environment, HF_ENDPOINT: endpoint, HF_HOME: join(folder, 'hf') },
      extendEnv: false,
      reject: false,
      timeout: COMMAND_TIMEOUT_MS,
    });
    if (exitCode !== 0) throw new TmaxError('EIO', `tmaxfs ${args[0]} failed: ${stderr || stdout}`, { source: 'demo' });
    return stdout.replaceAll(folder, '.');
  };
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
