/** Which driver is taken, what a refusal says, and what the machine around a mount may do to it. */

import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { topMountAt } from '../../src/fuse/mount-table.js';
import {
  eventually,
  MountServer,
  type MountServerConfig,
  type ServerError,
  temporaryDirectory,
} from '../support/mount-client.js';
import { mountedFixture } from '../support/mount-fixture.js';
import { pythonValue, RunningPython } from '../support/mount-user.js';

const MODULE_LOADING = `import Module from 'node:module'; const load = Module._load;`;
/** A Node in which `koffi` can't be loaded, as where it has no build for the machine. */
const WITHOUT_KOFFI = `${MODULE_LOADING} Module._load = function (name, ...rest) {
  if (name === 'koffi') throw new Error('no build of koffi for this machine');
  return load.call(this, name, ...rest);
};`;
/** A Node in which a native add-on misses libfuse 2. */
const WITHOUT_LIBFUSE = `const open = process.dlopen; process.dlopen = function (module, file, ...rest) {
  if (file.includes('fuse-native')) throw new Error('libfuse.so.2: cannot open shared object file');
  return open.call(this, module, file, ...rest);
};`;

function importing(source: string): readonly string[] {
  return ['--import', `data:text/javascript,${encodeURIComponent(source)}`];
}

async function unmounted(
  t: ExecutionContext,
  options: Partial<MountServerConfig>,
  execArgv: readonly string[] = [],
  user: 'root' | 'ordinary' = 'root',
): Promise<{ server: MountServer; config: MountServerConfig }> {
  const { directory, mountpoint } = await temporaryDirectory(t.teardown);
  const server = new MountServer(user, execArgv);
  t.teardown(() => server.kill());
  const source = join(directory, 'source');
  await execa('cp', ['/etc/hostname', source]);
  const config: MountServerConfig = {
    mountpoint,
    fsName: 'tmax-pool',
    allowOther: false,
    driver: 'auto',
    passthrough: 'auto',
    readThreads: 1,
    files: [{ path: 'easy/one.sif', source }],
    ...options,
  };
  return { server, config };
}

test.serial('auto takes the kernel driver', async (t) => {
  const { server, config } = await unmounted(t, {});
  t.is((await server.start(config)).driver, 'kernel');
});

test.serial('auto takes fuse-native where koffi cannot be loaded, says so, and unmounts as well', async (t) => {
  const { server, config } = await unmounted(t, {}, importing(WITHOUT_KOFFI));
  t.is((await server.start(config)).driver, 'fuse-native');
  t.true(server.log.includes('no build of koffi for this machine'));
  t.deepEqual(await pythonValue('root', 'out(os.listdir(args[0]))', config.mountpoint), ['easy']);
  t.true((await server.unmount({ lazy: false })).ended);
  t.is(topMountAt(config.mountpoint), undefined);
});

test.serial('the kernel driver is refused where koffi cannot be loaded', async (t) => {
  const { server, config } = await unmounted(t, { driver: 'kernel' }, importing(WITHOUT_KOFFI));
  const error = await t.throwsAsync<ServerError>(server.start(config));
  t.is(error.errno, 'ENOTSUP');
  t.true(error.message.includes('--driver fuse-native'));
});

test.serial('fuse-native without libfuse 2 is refused with the name of the package', async (t) => {
  const { server, config } = await unmounted(t, { driver: 'fuse-native' }, importing(WITHOUT_LIBFUSE));
  const error = await t.throwsAsync<ServerError>(server.start(config));
  t.is(error.errno, 'ENOTSUP');
  t.true(error.message.includes('libfuse2'), error.message);
});

for (const driver of ['kernel', 'fuse-native'] as const) {
  test.serial(`an ordinary user who may not mount for others is told how to (${driver})`, async (t) => {
    const { server, config } = await unmounted(t, { driver, allowOther: true }, [], 'ordinary');
    const error = await t.throwsAsync<ServerError>(server.start(config));
    t.is(error.errno, 'EPERM');
    t.true(error.message.includes('user_allow_other') && error.message.includes('/etc/fuse.conf'), error.message);
    t.is(topMountAt(config.mountpoint), undefined);
  });

  test.serial(`another user sees a mount only if it allows others (${driver})`, async (t) => {
    const script = 'out(errno_of(lambda: os.listdir(args[0])))';
    const closed = await unmounted(t, { driver });
    await closed.server.start(closed.config);
    t.is(await pythonValue('ordinary', script, closed.config.mountpoint), 'EACCES');
    const open = await unmounted(t, { driver, allowOther: true });
    await open.server.start(open.config);
    t.is(await pythonValue('ordinary', script, open.config.mountpoint), null);
  });

  test.serial(`what is mounted without execution can't be executed, and else it can (${driver})`, async (t) => {
    for (const user of ['root', 'ordinary'] as const) {
      for (const noExec of [false, true]) {
        const { server, config } = await unmounted(t, { driver, noExec }, [], user);
        await server.start(config);
        // statvfs(3): ST_NOEXEC is 8.
        t.is(await pythonValue(user, 'out(os.statvfs(args[0]).f_flag & 8)', config.mountpoint), noExec ? 8 : 0, user);
      }
    }
  });

  test.serial(
    `a name with commas, spaces and backslashes is shown as the source of the mount (${driver})`,
    async (t) => {
      const fsName = 'a pool, with\\commas';
      for (const user of ['root', 'ordinary'] as const) {
        const { server, config } = await unmounted(t, { driver, fsName }, [], user);
        await server.start(config);
        t.is(topMountAt(config.mountpoint)?.source, fsName, user);
      }
    },
  );
}

test.serial('a process that may have too few open files is told so before it mounts', async (t) => {
  const { server, config } = await unmounted(t, {});
  await execa('prlimit', ['--pid', String(server.pid), '--nofile=4096:4096']);
  const error = await t.throwsAsync<ServerError>(server.start(config));
  t.is(error.errno, 'EINVAL');
  t.true(error.message.includes('ulimit -n'), error.message);
  t.is(topMountAt(config.mountpoint), undefined);
});

test.serial(
  'a mount that is still used after its drain time is ended by force, and its server has let go of all',
  async (t) => {
    const { server, mountpoint } = await mountedFixture(t.teardown, {
      user: 'root',
      driver: 'kernel',
      passthrough: 'off',
    });
    const script = `
fd = os.open(args[0], os.O_RDONLY)
out('open')
sys.stdin.readline()
out(errno_of(lambda: os.pread(fd, 100, 1000000)))`;
    const holder = new RunningPython(t.teardown, 'root', script, join(mountpoint, 'easy/sparse.sif'));
    await holder.report();
    const state = await server.unmount({ lazy: true, drainTimeoutMs: 50 });
    t.true(state.ended);
    t.is(state.fileSystem.openDescriptors, 0);
    holder.tell('read');
    t.is(await holder.report(), 'ENOTCONN');
  },
);

test.serial('files of a cache on a stacked file system are relayed, and the log says why, once', async (t) => {
  const { directory } = await temporaryDirectory(t.teardown);
  const [merged, lower, upper, work] = [1, 2, 3, 4].map((number) => join(directory, `layer${number}`));
  if (merged === undefined) return t.fail();
  await execa('mkdir', [merged, ...[lower, upper, work].flatMap((path) => path ?? [])]);
  const layers = `lowerdir=${lower},upperdir=${upper},workdir=${work}`;
  await execa('mount', ['-t', 'overlay', 'overlay', '-o', layers, merged]);
  t.teardown(async () => void (await execa('umount', ['-l', merged])));
  const sources = [join(merged, 'one'), join(merged, 'two')];
  for (const source of sources) await execa('cp', ['/etc/hostname', source]);
  const files = sources.map((source, index) => ({ path: `easy/${index}.sif`, source }));
  const { server, config } = await unmounted(t, { files });
  t.true((await server.start(config)).passthrough);
  const script = 'out([open(f"{args[0]}/{n}.sif").read() == open("/etc/hostname").read() for n in (0, 1)])';
  t.deepEqual(await pythonValue('root', script, join(config.mountpoint, 'easy')), [true, true]);
  t.false((await server.state()).passthrough);
  t.is(server.log.match(/"code":"ELOOP"/g)?.length, 1);
});

test.serial(
  'files that are passed through are read on after a lazy unmount, by force, and without the process',
  async (t) => {
    const { server, mountpoint, sha256 } = await mountedFixture(t.teardown, {
      user: 'root',
      driver: 'kernel',
      passthrough: 'auto',
    });
    const script = `
file = open(args[0], 'rb')
out('open')
for line in sys.stdin:
    file.seek(0)
    out(hashlib.sha256(file.read()).hexdigest())`;
    const holder = new RunningPython(t.teardown, 'root', script, join(mountpoint, 'easy/one.sif'));
    await holder.report();
    const state = await server.unmount({ lazy: true, drainTimeoutMs: 50 });
    t.true(state.ended);
    t.is(state.statistics.backingIds, 0);
    t.is(state.fileSystem.openDescriptors, 0);
    holder.tell('read');
    t.is(await holder.report(), sha256);
    await server.kill();
    holder.tell('read');
    t.is(await holder.report(), sha256);
  },
);

test.serial('a mount that another mount namespace keeps is ended by force too', async (t) => {
  const { server, mountpoint } = await mountedFixture(t.teardown, {
    user: 'root',
    driver: 'kernel',
    passthrough: 'auto',
  });
  const container = execa('unshare', ['--mount', '--propagation', 'private', 'sh', '-c', 'echo ready; read line'], {
    reject: false,
  });
  t.teardown(async () => {
    container.kill('SIGKILL');
    await container;
  });
  await new Promise((resolve) => container.stdout?.once('data', resolve));
  t.true((await server.unmount({ lazy: false, drainTimeoutMs: 50 })).ended);
  t.is(topMountAt(mountpoint), undefined);
});

test.serial('an idle server uses no processor time', async (t) => {
  const { server, mountpoint } = await mountedFixture(t.teardown, {
    user: 'root',
    driver: 'kernel',
    passthrough: 'auto',
  });
  await pythonValue('root', 'out(os.listdir(args[0]))', mountpoint);
  const script = `
import time
def switches():
    total = 0
    for tid in os.listdir(f'/proc/{args[0]}/task'):
        for line in open(f'/proc/{args[0]}/task/{tid}/status'):
            if line.startswith('voluntary_ctxt_switches'): total += int(line.split()[1])
    return total
before = switches()
time.sleep(1)
out(switches() - before)`;
  // Node may still be tidying up after itself, so it is enough that a second without a wake-up comes.
  await eventually('no thread wakes up for a second', async () => {
    return (await pythonValue('root', script, String(server.pid))) === 0 ? true : undefined;
  });
  t.pass();
});

test.serial('the reading threads have ended once the mount is gone', async (t) => {
  const { server, mountpoint } = await mountedFixture(t.teardown, {
    user: 'root',
    driver: 'kernel',
    passthrough: 'off',
  });
  const threads = async (): Promise<number> => (await stat(`/proc/${server.pid}/task`)).nlink;
  const before = await threads();
  await server.unmount({ lazy: false });
  t.is(topMountAt(mountpoint), undefined);
  t.is(await threads(), before - 2);
});
