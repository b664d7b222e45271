/** `mount.tmaxfs` under a real mount(8), a real systemd and lines of fstab; booted once for all of these tests. */

import test, { type ExecutionContext } from 'ava';
import { FakeHub } from '../../src/demo/fake-hub.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { fileOf, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { tinyImage } from '../support/sif-writer.js';
import { type BootedSystem, bootSystemd, hasSystemd } from '../support/systemd.js';

const needsSystemd = hasSystemd ? test.serial : test.serial.skip;

const IMAGE = fileOf('images/0.sif', tinyImage(0));
const DIGEST = `${IMAGE.sha256}  /tmax/v/t0.sif`;
const REPOSITORY = 'test-org/pool';
const ends: (() => unknown)[] = [];
let booted: BootedSystem;

test.before(async () => {
  if (!hasSystemd) return;
  booted = await bootSystemd({ teardown: (end) => ends.push(end) });
  await booted.run('ln -s /opt/tmaxfs/bin/mount.tmaxfs.js /usr/sbin/mount.tmaxfs; mkdir -p /tmax /etc/tmaxfs');
});
test.after.always(async () => {
  for (const end of ends.reverse()) await end();
});

/** A Hub for one test, named in the variables of the mount point; nothing is mounted and nothing in fstab afterwards. */
async function prepare(t: ExecutionContext): Promise<FakeHub> {
  const hub = await FakeHub.start({
    repositories: [repositoryOf(REPOSITORY, [taskMapFile({ v: { t0: IMAGE.path } }), IMAGE])],
  });
  t.teardown(async () => {
    await booted.run(
      'systemctl stop tmax.automount tmax.mount; umount --lazy /tmax; : > /etc/fstab; systemctl daemon-reload',
    );
    await hub.close();
  });
  await booted.run(`echo HF_ENDPOINT=${hub.endpoint} > /etc/tmaxfs/tmax.env`);
  return hub;
}

async function fstab(options: string): Promise<void> {
  await booted.run(`echo '${REPOSITORY} /tmax tmaxfs ${options} 0 0' > /etc/fstab; systemctl daemon-reload`);
}

/** Waits until no daemon is left. */
async function daemonsEnd(): Promise<void> {
  await booted.run(
    'while grep --quiet --no-messages -e "[-]-foreground" /proc/[0-9]*/cmdline || grep -q " /tmax fuse" /proc/mounts; do sleep 0.1; done',
  );
}

needsSystemd('mount -t tmaxfs mounts with its options, umount ends the daemon', async (t) => {
  await prepare(t);
  const options = 'cache_dir=/var/tmp/pool,cache_size=5G,noexec';
  const mounted = await booted.run(`mount -t tmaxfs -o ${options} ${REPOSITORY} /tmax && sha256sum /tmax/v/t0.sif`);
  t.is(mounted.exitCode, 0, mounted.stderr);
  t.is(mounted.stdout.split('\n').at(-1), DIGEST);
  t.is(
    (await booted.run('findmnt --noheadings --output SOURCE,FSTYPE /tmax | xargs')).stdout,
    `${REPOSITORY} fuse.tmaxfs`,
  );
  const flags = (await booted.run('findmnt --noheadings --output VFS-OPTIONS /tmax')).stdout.split(',');
  for (const flag of ['ro', 'nosuid', 'nodev', 'noexec']) t.true(flags.includes(flag), flag);
  t.regex((await booted.run('tmaxfs status /tmax')).stdout, /of 5\.0 GiB\n {2}disk .* \/var\/tmp\/pool$/m);
  t.is((await booted.run('umount /tmax')).exitCode, 0);
  await daemonsEnd();
});

needsSystemd(
  'what mount(8) hands on is understood: a fake mount mounts nothing, a verbose one says what it does',
  async (t) => {
    await prepare(t);
    const fake = await booted.run(`mount -fnsv -t tmaxfs -o nonsense,cache_size=5G ${REPOSITORY} /tmax`);
    t.is(fake.exitCode, 0, fake.stderr);
    t.regex(fake.stdout, /^mount\.tmaxfs: tmaxfs mount --repo=test-org\/pool --cache-size=5G -- \/tmax$/m);
    t.is((await booted.run('grep -c " /tmax fuse" /proc/mounts')).stdout, '0');
  },
);

needsSystemd('a refusal names the option, and its exit code is that of mount(8)', async (t) => {
  const hub = await prepare(t);
  const unknown = await booted.run(`mount -t tmaxfs -o nonsense ${REPOSITORY} /tmax`);
  t.is(unknown.exitCode, 1);
  t.regex(unknown.stderr, /^tmaxfs: "nonsense" is no option of this mount/);
  t.is((await booted.run('mount -t tmaxfs no-slash /tmax')).exitCode, 1);
  t.is(hub.requests.all.length, 0);
  const absent = await booted.run('mount -t tmaxfs test-org/absent /tmax');
  t.is(absent.exitCode, 32);
  t.regex(absent.stderr, /test-org\/absent/);
});

needsSystemd('mount -a mounts what fstab lists, once', async (t) => {
  await prepare(t);
  await fstab('_netdev,nofail,cache_size=5G');
  t.is((await booted.run('mount -a')).exitCode, 0);
  t.is((await booted.run('mount -a && sha256sum /tmax/v/t0.sif')).stdout, DIGEST);
  t.is((await booted.run('grep -c " /tmax fuse" /proc/mounts')).stdout, '1');
  // Where the service keeps them too.
  t.not((await booted.run('ls /var/cache/tmaxfs/blobs')).stdout, '');
});

needsSystemd('an automount mounts on the first look, unmounts with its unit, and mounts again', async (t) => {
  await prepare(t);
  await fstab('_netdev,nofail,noauto,x-systemd.automount,cache_size=5G');
  t.is((await booted.run('systemctl start tmax.automount')).exitCode, 0);
  t.is((await booted.run('grep -c " /tmax fuse" /proc/mounts')).stdout, '0', 'nobody has looked yet');
  for (let round = 0; round < 2; round += 1) {
    const read = await booted.run('sha256sum /tmax/v/t0.sif');
    t.is(read.stdout, DIGEST, read.stderr);
    t.is((await booted.run('systemctl is-active tmax.mount')).stdout, 'active');
    t.is((await booted.run('systemctl stop tmax.mount')).exitCode, 0);
    await daemonsEnd();
  }
});

needsSystemd('a dead mount below an automount is taken away, and the next look mounts anew', async (t) => {
  await prepare(t);
  await fstab('_netdev,nofail,noauto,x-systemd.automount,cache_size=5G');
  await booted.run('systemctl start tmax.automount; ls /tmax');
  await booted.run(
    `kill -KILL $(tmaxfs status /tmax --json | sed -n 's/^  "pid": \\([0-9]*\\),/\\1/p'); tmaxfs unmount --dead /tmax`,
  );
  t.is((await booted.run('sha256sum /tmax/v/t0.sif')).stdout, DIGEST);
});

needsSystemd('with "user" in fstab an ordinary user mounts and unmounts', async (t) => {
  await prepare(t);
  await booted.run('id alice || useradd --create-home alice; chown alice /tmax; chmod 666 /dev/fuse');
  t.teardown(() => booted.run('chown root /tmax'));
  await fstab('noauto,user');
  const asAlice = (script: string) => booted.run(`runuser -u alice -- sh -c '${script}'`);
  const mounted = await asAlice('mount /tmax && sha256sum /tmax/v/t0.sif');
  t.is(mounted.stdout.split('\n').at(-1), DIGEST, mounted.stderr);
  const unmounted = await asAlice('umount /tmax');
  t.is(unmounted.exitCode, 0, unmounted.stderr);
  await daemonsEnd();
});
