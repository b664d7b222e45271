/**
 * Whoever waits in an `open` can be killed and interrupted, whatever the daemon waits for. Through the real daemon, with
 * a Hub that stops in the middle of the image.
 */

import test, { type ExecutionContext } from 'ava';
import type { InstalledFault } from '../../src/demo/fake-hub-faults.js';
import { eventually } from '../support/mount-client.js';
import { RunningPython } from '../support/mount-user.js';
import { MountedPool } from '../support/mounted-pool.js';
import { packagePath } from '../support/paths.js';
import { smallPool } from '../support/small-pool.js';

/** A killed or interrupted caller must be free within this. */
const RELEASE_LIMIT_SECONDS = 1;
const VICTIMS = 100;
const SURVIVORS = 200;

/**
 * Starts many processes that open one file, as told: `survivors` that digest it, and victims of four kinds by turns:
 * killed or caught (SIGUSR1), each with and without harmless signals before. Reports, when told to: how each ended, and
 * how long after its signal. With "inside" all that happens in a pid namespace of its own.
 */
const CROWD = `
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
path, victim_count, survivor_count, where = args[0], int(args[1]), int(args[2]), args[3]
HARMLESS = (signal.SIGURG, signal.SIGCHLD, signal.SIGWINCH)
if where == 'inside':
    if libc.unshare(0x20000000) != 0: raise OSError(ctypes.get_errno(), 'unshare')
    init = os.fork()
    if init != 0: os._exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]))
def start(act):
    pid = os.fork()
    if pid != 0: return pid
    try:
        os._exit(act())
    except BaseException:
        os._exit(99)
def survive():
    digest = hashlib.sha256(open(path, 'rb').read()).hexdigest()
    return 0 if digest == args[4] else 1
def wait_for_signal():
    for number in (*HARMLESS, signal.SIGUSR1): signal.signal(number, lambda *_: None)
    descriptor = libc.open(path.encode(), os.O_RDONLY)
    return 2 if descriptor < 0 and ctypes.get_errno() == errno.EINTR else 3
survivors = [start(survive) for _ in range(survivor_count)]
victims = [start(wait_for_signal) for _ in range(victim_count)]
out('started')
sys.stdin.readline()
for index, pid in enumerate(victims):
    if index % 4 < 2:
        for number in HARMLESS: os.kill(pid, number)
out('harmless signals sent')
sys.stdin.readline()
sent = {}
for index, pid in enumerate(victims):
    sent[pid] = time.monotonic()
    os.kill(pid, signal.SIGKILL if index % 2 == 0 else signal.SIGUSR1)
ends = {}
while len(ends) < victim_count:
    for pid in victims:
        if pid in ends: continue
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: ends[pid] = [os.waitstatus_to_exitcode(status), time.monotonic() - sent[pid]]
    time.sleep(0.001)
out([ends[pid] for pid in victims])
sys.stdin.readline()
out([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in survivors])`;

interface Stalled {
  readonly pool: MountedPool;
  readonly stall: InstalledFault;
  readonly path: string;
  readonly sha256: string;
}

/** A pool whose one image stops arriving in the middle; the daemon will ask for the rest anew. */
async function stalledPool(t: ExecutionContext, mount: 'mount' | 'prepare' = 'mount'): Promise<Stalled> {
  const { files, tasks } = smallPool(1, 1_000_000);
  const pool = await MountedPool.prepare(t, { files, tasks });
  if (mount === 'mount') await pool.mount();
  const stall = pool.hub.fault({ server: 'cdn', fault: { kind: 'stall', afterBytes: 500_000 }, requests: 'every' });
  return { pool, stall, path: pool.path('v/t0.sif'), sha256: files[0]?.sha256 ?? '' };
}

async function untilKernel(
  pool: MountedPool,
  description: string,
  condition: (kernel: Awaited<ReturnType<MountedPool['status']>>['kernel']) => boolean,
): Promise<void> {
  await eventually(description, async () => condition((await pool.status()).kernel) || undefined);
}

for (const where of ['outside', 'inside'] as const) {
  const place = where === 'inside' ? ', in a pid namespace of their own' : '';
  test.serial(
    `100 of 100 callers that are killed or interrupted leave within a second${place}; the others get the file`,
    async (t) => {
      const { pool, stall, path, sha256 } = await stalledPool(t);
      const crowd = new RunningPython(
        t.teardown,
        'root',
        CROWD,
        ...[path, String(VICTIMS), String(SURVIVORS), where, sha256],
      );
      t.is(await crowd.report(), 'started');
      await untilKernel(pool, 'all wait', ({ waitingOpens }) => waitingOpens === VICTIMS + SURVIVORS);
      crowd.tell('send the harmless signals');
      t.is(await crowd.report(), 'harmless signals sent');
      await untilKernel(
        pool,
        'the kernel has told of them',
        ({ requests }) => (requests['INTERRUPT'] ?? 0) >= VICTIMS / 2,
      );
      t.is((await pool.status()).kernel.waitingOpens, VICTIMS + SURVIVORS, 'harmless signals have ended no wait');
      crowd.tell('end the victims');
      const ends = (await crowd.report()) as [number, number][];
      t.is(ends.length, VICTIMS);
      t.deepEqual(
        ends.map(([exitCode]) => exitCode),
        ends.map((_, index) => (index % 2 === 0 ? -9 : 2)),
        'killed, or interrupted with EINTR',
      );
      const slowest = Math.max(...ends.map(([, seconds]) => seconds));
      t.log(`the slowest of ${ends.length} took ${slowest.toFixed(3)} s`);
      t.true(slowest < RELEASE_LIMIT_SECONDS, `${slowest} s`);

      t.is((await pool.status()).fetches.running.length, 1, 'the fetch goes on');
      stall.remove();
      crowd.tell('wait for the survivors');
      t.deepEqual(await crowd.report(), Array(SURVIVORS).fill(0));
      const { fetches, kernel } = await pool.status();
      t.is(fetches.done, 1);
      t.is(kernel.waitingOpens, 0);
      t.is(kernel.openHandles, 0);
    },
  );
}

test.serial(
  'callers outside of the daemon’s pid namespace can be killed too; there even a harmless signal ends an open, with EINTR',
  async (t) => {
    const { pool, path } = await stalledPool(t, 'prepare');
    const words = [process.execPath, packagePath('bin', 'tmaxfs.js'), ...pool.mountCommand, '--foreground'];
    const daemon = pool.spawn(['unshare', '--pid', '--fork', '--kill-child', ...words]);
    t.teardown(async () => {
      daemon.kill('SIGKILL');
      await daemon;
    });
    await eventually(
      'the tree is readable',
      async () => (await pool.run('ls', [pool.path('v')])).exitCode === 0 || undefined,
    );
    const open = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGURG, lambda *_: None)
out('opening')
out(errno.errorcode[ctypes.get_errno()] if libc.open(args[0].encode(), os.O_RDONLY) < 0 else 'opened')`;
    const [killed, disturbed] = ['killed', 'disturbed'].map(() => new RunningPython(t.teardown, 'root', open, path));
    if (killed === undefined || disturbed === undefined) return t.fail();
    for (const program of [killed, disturbed]) await program.report();
    await untilKernel(pool, 'both wait', ({ waitingOpens }) => waitingOpens === 2);
    const startedMs = performance.now();
    killed.signal('SIGKILL');
    disturbed.signal('SIGURG');
    t.is((await killed.exit()).signal, 'SIGKILL');
    t.is(await disturbed.report(), 'EINTR');
    t.true(performance.now() - startedMs < RELEASE_LIMIT_SECONDS * 1000);
    t.is((await pool.status()).fetches.running.length, 1, 'the fetch goes on');
    await pool.run('umount', ['-l', pool.mountpoint]);
  },
);
