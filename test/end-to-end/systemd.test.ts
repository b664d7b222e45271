/** The units, under a real systemd: its own, booted once for all of these tests. */

import test, { type ExecutionContext } from 'ava';
import { FakeHub } from '../../src/demo/fake-hub.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { fileOf, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { tinyImage } from '../support/sif-writer.js';
import { type BootedSystem, bootSystemd, hasSystemd } from '../support/systemd.js';

const needsSystemd = hasSystemd ? test.serial : test.serial.skip;

const IMAGE = fileOf('images/0.sif', tinyImage(0));
const DIGEST = `${IMAGE.sha256}  /tmax/v/t0.sif`;
const ends: (() => unknown)[] = [];
let booted: BootedSystem;

test.before(async () => {
  if (hasSystemd) booted = await bootSystemd({ teardown: (end) => ends.push(end) });
});
test.after.always(async () => {
  for (const end of ends.reverse()) await end();
});

/** A Hub for one test, with the unit configured for it, and stopped, cacheless, afterwards. */
async function prepare(t: ExecutionContext, more: readonly string[] = []): Promise<FakeHub> {
  const repository = repositoryOf('test-org/pool', [taskMapFile({ v: { t0: IMAGE.path } }), IMAGE]);
  const hub = await FakeHub.start({ repositories: [repository] });
  t.teardown(async () => {
    await booted.run('systemctl stop tmaxfs@tmax; systemctl reset-failed tmaxfs@tmax; rm -rf /var/cache/tmaxfs');
    await hub.close();
  });
  const variables = [`HF_ENDPOINT=${hub.endpoint}`, 'TMAXFS_REPO=test-org/pool', ...more];
  await booted.run(`mkdir -p /etc/tmaxfs && printf '%s\\n' ${variables.join(' ')} > /etc/tmaxfs/tmax.env`);
  return hub;
}

/** Waits until a shell condition holds; the script's own bound is that of every command. */
function until(condition: string): Promise<unknown> {
  return booted.run(`until ${condition}; do sleep 0.2; done`);
}

async function show(property: string): Promise<string> {
  return (await booted.run(`systemctl show tmaxfs@tmax --property ${property} --value`)).stdout;
}

needsSystemd('systemd finds nothing to complain of in either unit', async (t) => {
  await booted.run('mkdir -p /tmp/x');
  for (const scope of ['system', 'user']) {
    const { exitCode, stdout, stderr } = await booted.run(
      `XDG_RUNTIME_DIR=/tmp systemd-analyze --${scope} --man=no verify tmaxfs@tmp-x.service`,
    );
    t.is(`${stdout}${stderr}`, '', scope);
    t.is(exitCode, 0);
  }
});

needsSystemd('the unit is ready once the tree is readable, says what it does, and stops cleanly', async (t) => {
  await prepare(t);
  const started = await booted.run('systemctl start tmaxfs@tmax && sha256sum /tmax/v/t0.sif');
  t.is(started.exitCode, 0, started.stderr);
  t.is(started.stdout, DIGEST);
  // Kept current: the image that was just opened is counted.
  await until('systemctl show tmaxfs@tmax --property StatusText | grep -q " KiB of"');
  t.regex(await show('StatusText'), /^v: 1 task · 0 fetches · [\d.]+ KiB of [\d.]+ [MGT]iB$/);
  t.is(await show('OOMScoreAdjust'), '-900');

  const stopped = await booted.run('systemctl stop tmaxfs@tmax; systemctl show tmaxfs@tmax --property Result --value');
  t.is(stopped.stdout, 'success');
  t.is((await booted.run('grep -c " /tmax " /proc/mounts')).stdout, '0');
  t.is((await booted.run('ls /tmax')).stdout, '');
});

needsSystemd('a mount point whose name systemd has to escape has its variables too', async (t) => {
  await prepare(t);
  const read = await booted.run(`
    mkdir -p /etc/tmaxfs/srv && cp /etc/tmaxfs/tmax.env /etc/tmaxfs/srv/the-pool.env
    unit="tmaxfs@$(systemd-escape --path /srv/the-pool)"
    timeout 60 systemctl start "$unit" && sha256sum /srv/the-pool/v/t0.sif
    systemctl stop "$unit"`);
  t.is(read.stdout, `${IMAGE.sha256}  /srv/the-pool/v/t0.sif`, read.stderr);
});

needsSystemd('a daemon that is killed is started anew, over the mount that it left', async (t) => {
  await prepare(t);
  t.is((await booted.run('systemctl start tmaxfs@tmax')).exitCode, 0);
  await booted.run('systemctl kill --signal KILL tmaxfs@tmax');
  await until(
    '[ "$(systemctl show tmaxfs@tmax --property NRestarts,ActiveState --value | sort | xargs)" = "1 active" ]',
  );
  t.is((await booted.run('sha256sum /tmax/v/t0.sif')).stdout, DIGEST);
  t.is((await booted.run('grep -c " /tmax " /proc/mounts')).stdout, '1', 'no dead mount lies below');
});

needsSystemd('a daemon that hangs is ended by the watchdog and started anew', async (t) => {
  await prepare(t);
  const dropIn = '/run/systemd/system/tmaxfs@tmax.service.d';
  t.teardown(() => booted.run(`rm -r ${dropIn}; systemctl daemon-reload`));
  await booted.run(
    `mkdir -p ${dropIn} && printf '[Service]\\nWatchdogSec=6s\\n' > ${dropIn}/x.conf && systemctl daemon-reload && systemctl start tmaxfs@tmax`,
  );
  const pid = await show('MainPID');
  await booted.run(`kill -STOP ${pid}`);
  await until(`[ "$(systemctl show tmaxfs@tmax --property ActiveState,MainPID --value | xargs)" != "${pid} active" ]`);
  await until('systemctl is-active --quiet tmaxfs@tmax');
  t.not(await show('MainPID'), pid);
  t.regex((await booted.run('journalctl --unit tmaxfs@tmax --no-pager')).stdout, /Watchdog timeout/);
  t.is((await booted.run('sha256sum /tmax/v/t0.sif')).stdout, DIGEST);
  // A sign of life has come from the new one, and comes again.
  for (let signs = 0; signs < 2; signs += 1) {
    const last = await show('WatchdogTimestampMonotonic');
    await until(`[ "$(systemctl show tmaxfs@tmax --property WatchdogTimestampMonotonic --value)" != "${last}" ]`);
  }
});

needsSystemd('a Hub that does not answer yet is waited for, and said so', async (t) => {
  const hub = await prepare(t);
  const fault = hub.fault({ server: 'hub', fault: { kind: 'reset' }, requests: 'every' });
  await booted.run('systemctl start --no-block tmaxfs@tmax');
  await until('systemctl show tmaxfs@tmax --property StatusText | grep -q "for [0-9]* s more"');
  t.regex(await show('StatusText'), /^starting: no answer from the Hub yet, asking for \d+ s more/);
  t.is(await show('ActiveState'), 'activating');
  fault.remove();
  await until('systemctl is-active --quiet tmaxfs@tmax');
  t.is(await show('NRestarts'), '0');
  t.is((await booted.run('sha256sum /tmax/v/t0.sif')).stdout, DIGEST);
});

needsSystemd('what a start can’t mend is seen to fail; wrong usage is not tried again', async (t) => {
  await prepare(t, ['TMAXFS_REVISION=nowhere']);
  const refused = await booted.run('systemctl start tmaxfs@tmax');
  t.not(refused.exitCode, 0);
  t.regex((await booted.run('journalctl --unit tmaxfs@tmax --no-pager')).stdout, /no revision \\"nowhere\\"/);
  t.is(await show('ActiveState'), 'activating', 'it is tried again later');
  await booted.run('systemctl stop tmaxfs@tmax; echo TMAXFS_VERIFY=maybe >> /etc/tmaxfs/tmax.env');
  await booted.run('systemctl start tmaxfs@tmax');
  t.is(await show('ActiveState'), 'failed');
});

needsSystemd('the mount of somebody else is neither taken nor taken away', async (t) => {
  await prepare(t);
  const mounted = await booted.run('mkdir -p /tmax && set -a && . /etc/tmaxfs/tmax.env && tmaxfs mount /tmax');
  t.is(mounted.exitCode, 0, mounted.stderr);
  t.teardown(() => booted.run('tmaxfs unmount /tmax'));
  t.not((await booted.run('systemctl start tmaxfs@tmax')).exitCode, 0);
  await booted.run('systemctl stop tmaxfs@tmax');
  t.is((await booted.run('sha256sum /tmax/v/t0.sif')).stdout, DIGEST);
});

needsSystemd('a user without root has a service of their own', async (t) => {
  const hub = await prepare(t);
  await booted.run(
    'chmod 666 /dev/fuse; id alice || useradd --create-home --shell /bin/bash alice; systemctl start user@$(id -u alice)',
  );
  const asAlice = (script: string) =>
    booted.run(`runuser -u alice -- env XDG_RUNTIME_DIR=/run/user/$(id -u alice) sh -c '${script}'`);
  await asAlice(
    `mkdir -p ~/.config/tmaxfs$HOME && printf "%s\\n" HF_ENDPOINT=${hub.endpoint} TMAXFS_REPO=test-org/pool > ~/.config/tmaxfs$HOME/tmax.env`,
  );
  const started = await asAlice('systemctl --user start tmaxfs@home-alice-tmax && sha256sum ~/tmax/v/t0.sif');
  t.is(started.stdout, `${IMAGE.sha256}  /home/alice/tmax/v/t0.sif`, started.stderr);
  await asAlice('systemctl --user kill --signal KILL tmaxfs@home-alice-tmax');
  const back = await asAlice(
    'until [ "$(systemctl --user show tmaxfs@home-alice-tmax --property NRestarts,ActiveState --value | sort | xargs)" = "1 active" ]; do sleep 0.2; done; sha256sum ~/tmax/v/t0.sif',
  );
  t.is(back.stdout, `${IMAGE.sha256}  /home/alice/tmax/v/t0.sif`);
  await asAlice('systemctl --user stop tmaxfs@home-alice-tmax');
  t.is((await booted.run('grep -c alice/tmax /proc/mounts')).stdout, '0');
});
