/**
 * Waiting, interrupting, unmounting, crashing: each test has a mount of its own. One after the other, since they measure
 * times, and each starts processes.
 */

import { readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { topMountAt } from '../../src/fuse/mount-table.js';
import { eventually, MountServer, type ServerError, type User } from './mount-client.js';
import { type MountFixture, type MountVariant, mountedFixture, passesThrough } from './mount-fixture.js';
import { pythonValue, RunningPython, timed } from './mount-user.js';

/** A killed or interrupted caller must be free within this. */
const RELEASE_LIMIT_MS = 1000;

/** Opens a file and says when it is open. */
const OPENS = `
out('opening')
try:
    fd = os.open(args[0], os.O_RDONLY)
    out(len(os.read(fd, 100)))
except OSError as error:
    out(errno.errorcode[error.errno])
sys.stdin.readline()`;

/** Opens a file, says so, and reads from it (whole) each time it is told to; ends at "end". */
const HOLDS = `
fd = os.open(args[0], os.O_RDONLY)
out('open')
for line in sys.stdin:
    if line == 'end\\n': break
    try:
        os.lseek(fd, 0, os.SEEK_SET)
        digest = hashlib.sha256()
        while chunk := os.read(fd, 1 << 20): digest.update(chunk)
        out(digest.hexdigest())
    except OSError as error:
        out(errno.errorcode[error.errno])`;

/** A program that waits in an open of the slow file. */
async function waiting(
  t: ExecutionContext,
  user: User,
  { server, mountpoint }: MountFixture,
  script = OPENS,
): Promise<RunningPython> {
  const before = (await server.state()).statistics.waitingOpens;
  const program = new RunningPython(t.teardown, user, script, join(mountpoint, 'easy/slow.sif'));
  await program.report();
  await server.until('the open waits', (state) => state.statistics.waitingOpens > before);
  return program;
}

/** Defines the tests that need a driver which can end an open before its file is ready. */
export function testInterrupting(variant: MountVariant): void {
  const { user } = variant;

  test.serial(
    'an open whose caller is killed ends within a second, and the others go on waiting for the same file',
    async (t) => {
      const fixture = await mountedFixture(t.teardown, variant);
      const victim = await waiting(t, user, fixture);
      const other = await waiting(t, user, fixture);
      victim.signal('SIGKILL');
      t.true((await timed(victim.exit())) < RELEASE_LIMIT_MS);
      const state = await fixture.server.until('one wait has ended', ({ statistics }) => statistics.waitingOpens === 1);
      t.is(state.fileSystem.waitingOpens, 1);
      t.deepEqual(state.fileSystem.events, ['aborted']);
      await fixture.server.finish();
      t.is(await other.report(), 5);
      other.tell('end');
      await other.exit();
      await fixture.server.until('all is closed', ({ fileSystem }) => fileSystem.openDescriptors === 0);
    },
  );

  test.serial('an open that a handler interrupts ends within a second with EINTR', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const program = await waiting(
      t,
      user,
      fixture,
      `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGUSR1, lambda *_: None)
out('opening')
out(errno.errorcode[ctypes.get_errno()] if libc.open(args[0].encode(), os.O_RDONLY) < 0 else 'opened')`,
    );
    program.signal('SIGUSR1');
    const report = program.report();
    t.true((await timed(report)) < RELEASE_LIMIT_MS);
    t.is(await report, 'EINTR');
  });

  for (const name of ['SIGINT', 'SIGTERM', 'SIGQUIT'] as const) {
    test.serial(`an open whose caller gets ${name} ends within a second`, async (t) => {
      const fixture = await mountedFixture(t.teardown, variant);
      const program = await waiting(t, user, fixture, `signal.signal(signal.${name}, signal.SIG_DFL)${OPENS}`);
      program.signal(name);
      t.true((await timed(program.exit())) < RELEASE_LIMIT_MS);
      t.is((await program.exit()).signal, name);
    });
  }

  test.serial(
    'harmless signals end no open, not even where they are caught, and do not hide the one that kills',
    async (t) => {
      const fixture = await mountedFixture(t.teardown, variant);
      const program = await waiting(
        t,
        user,
        fixture,
        `for name in ('SIGURG', 'SIGCHLD'): signal.signal(getattr(signal, name), lambda *_: None)${OPENS}`,
      );
      program.signal('SIGURG');
      program.signal('SIGCHLD');
      program.signal('SIGWINCH');
      await fixture.server.until(
        'the kernel has told of a signal',
        ({ statistics }) => (statistics.requests['INTERRUPT'] ?? 0) > 0,
      );
      const state = await fixture.server.state();
      t.is(state.statistics.waitingOpens, 1);
      program.signal('SIGKILL');
      t.true((await timed(program.exit())) < RELEASE_LIMIT_MS);
      await fixture.server.until('the wait has ended', ({ statistics }) => statistics.waitingOpens === 0);
    },
  );

  test.serial('an ignored signal ends no open', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const program = await waiting(t, user, fixture, `signal.signal(signal.SIGTERM, signal.SIG_IGN)${OPENS}`);
    program.signal('SIGTERM');
    await fixture.server.finish();
    t.is(await program.report(), 5);
  });

  test.serial('a process with many threads in an open dies within a second', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const script = `
import threading
for _ in range(15): threading.Thread(target=lambda: os.open(args[0], os.O_RDONLY)).start()
out('opening')`;
    const program = new RunningPython(t.teardown, user, script, join(fixture.mountpoint, 'easy/slow.sif'));
    await fixture.server.until('all wait', ({ statistics }) => statistics.waitingOpens === 15);
    program.signal('SIGKILL');
    t.true((await timed(program.exit())) < RELEASE_LIMIT_MS);
    await fixture.server.until('no wait is left', ({ fileSystem }) => fileSystem.waitingOpens === 0);
  });

  test.serial('an unmount names the opens that wait', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const program = await waiting(t, user, fixture);
    const error = await t.throwsAsync<ServerError>(fixture.server.unmount({ lazy: false }));
    t.is(error.errno, 'EBUSY');
    t.true(error.message.includes(String(program.pid)), error.message);
    program.signal('SIGKILL');
    await program.exit();
  });
}

/** Defines the tests of mounting, unmounting and crashing. */
export function testLifecycle(variant: MountVariant): void {
  const { user } = variant;

  async function holding(
    t: ExecutionContext,
    { mountpoint }: MountFixture,
    path = 'easy/one.sif',
  ): Promise<RunningPython> {
    const program = new RunningPython(t.teardown, user, HOLDS, join(mountpoint, path));
    await program.report();
    return program;
  }

  test.serial('open files are read while 64 opens wait', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const holder = await holding(t, fixture);
    const script = `
import threading
for _ in range(64): threading.Thread(target=lambda: os.open(args[0], os.O_RDONLY)).start()`;
    const waiters = new RunningPython(t.teardown, user, script, join(fixture.mountpoint, 'easy/slow.sif'));
    await fixture.server.until('all wait', ({ fileSystem }) => fileSystem.waitingOpens === 64);
    holder.tell('read');
    t.is(await holder.report(), fixture.sha256);
    t.deepEqual(await pythonValue(user, 'out(sorted(os.listdir(args[0])))', fixture.mountpoint), ['easy', 'hard']);
    await fixture.server.finish();
    t.is((await waiters.exit()).code, 0);
  });

  test.serial('a lazy unmount ends the opens that wait, with ENOTCONN', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const program = await waiting(t, user, fixture);
    const unmounted = fixture.server.unmount({ lazy: true });
    t.is(await program.report(), 'ENOTCONN');
    program.tell('end');
    t.true((await unmounted).ended);
  });

  test.serial('an unmount with nothing open ends the mount and leaves nothing behind', async (t) => {
    const { server, mountpoint } = await mountedFixture(t.teardown, variant);
    await pythonValue(user, 'out(len(open(args[0], "rb").read()))', join(mountpoint, 'easy/one.sif'));
    const state = await server.unmount({ lazy: false });
    t.is(topMountAt(mountpoint), undefined);
    t.true(state.ended);
    t.is(state.fileSystem.openDescriptors, 0);
    t.is(state.statistics.openHandles, 0);
    t.is(state.statistics.backingIds, 0);
    await eventually('the device is closed', async () => (await devicesOf(server)).length === 0 || undefined);
  });

  test.serial('a busy mount is not unmounted, and the refusal names who holds it', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const holder = await holding(t, fixture);
    const error = await t.throwsAsync<ServerError>(fixture.server.unmount({ lazy: false }));
    t.is(error.errno, 'EBUSY');
    t.true(error.message.includes(`${holder.pid} (python3)`), error.message);
    t.true(error.message.includes('easy/one.sif'), error.message);
    t.not(topMountAt(fixture.mountpoint), undefined);
    holder.tell('end');
    await holder.exit();
    t.true((await fixture.server.unmount({ lazy: false })).ended);
  });

  test.serial('after a lazy unmount an open file is read on until it is closed, and then the mount ends', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const holder = await holding(t, fixture);
    const unmounted = fixture.server.unmount({ lazy: true, drainTimeoutMs: 20_000 });
    await eventually('the mount is out of the tree', () => topMountAt(fixture.mountpoint) === undefined || undefined);
    holder.tell('read');
    t.is(await holder.report(), fixture.sha256);
    t.false((await fixture.server.state()).ended);
    holder.tell('end');
    const state = await unmounted;
    t.true(state.ended);
    t.is(state.fileSystem.openDescriptors, 0);
  });

  test.serial('a file can be opened by name after a mount, an unmount and a mount again', async (t) => {
    const { server, mountpoint, config } = await mountedFixture(t.teardown, variant);
    await server.unmount({ lazy: false });
    await server.start(config);
    t.is(
      await pythonValue(user, 'out(open(args[0], "rb").read().decode())', join(mountpoint, 'easy/none.sif')).catch(
        () => 'missing',
      ),
      'missing',
    );
    t.deepEqual(await pythonValue(user, 'out(sorted(os.listdir(args[0])))', mountpoint), ['easy', 'hard']);
  });

  test.serial('who unmounts from outside ends the mount too', async (t) => {
    const { server, mountpoint } = await mountedFixture(t.teardown, variant);
    const script = `
import subprocess
out(subprocess.run(['umount', args[0]] if os.geteuid() == 0 else ['fusermount3', '-u', args[0]]).returncode)`;
    t.is(await pythonValue(user, script, mountpoint), 0);
    await server.until('the server has noticed', (state) => state.ended);
  });

  test.serial(
    'when the server is killed, open files are read on if they are passed through, else end in ENOTCONN',
    async (t) => {
      const fixture = await mountedFixture(t.teardown, variant);
      const holder = await holding(t, fixture);
      await fixture.server.kill();
      holder.tell('read');
      t.is(await holder.report(), passesThrough(variant) ? fixture.sha256 : 'ENOTCONN');
    },
  );

  test.serial('a mount whose server was killed is taken away by the next one', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    // The kernel knows the attributes of the root now, and would still answer a stat of it.
    await pythonValue(user, 'out(os.stat(args[0]).st_ino)', fixture.mountpoint);
    await fixture.server.kill();
    const successor = new MountServer(user);
    t.teardown(() => successor.kill());
    await successor.start(fixture.config);
    t.true(successor.log.includes('took away the dead mount'), successor.log);
    t.deepEqual(await pythonValue(user, 'out(sorted(os.listdir(args[0])))', fixture.mountpoint), ['easy', 'hard']);
    await successor.unmount({ lazy: false });
    t.is(topMountAt(fixture.mountpoint), undefined);
  });

  test.serial('a second server on one mount point is refused', async (t) => {
    const fixture = await mountedFixture(t.teardown, variant);
    const second = new MountServer(user);
    t.teardown(() => second.kill());
    const error = await t.throwsAsync<ServerError>(second.start(fixture.config));
    t.is(error.errno, 'EBUSY');
    t.true(error.message.includes('already served by a running tmaxfs'), error.message);
    t.deepEqual(await pythonValue(user, 'out(sorted(os.listdir(args[0])))', fixture.mountpoint), ['easy', 'hard']);
  });
}

/** Descriptors of /dev/fuse in the server's process. */
async function devicesOf(server: MountServer): Promise<readonly string[]> {
  const directory = `/proc/${server.pid}/fd`;
  const targets = await Promise.all(
    (await readdir(directory)).map((name) => readlink(join(directory, name)).catch(() => '')),
  );
  return targets.filter((target) => target === '/dev/fuse');
}
