import test from 'ava';
import { FakeHub } from '../../src/demo/fake-hub.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { fileOf, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { tinyImage } from '../support/sif-writer.js';
import { bootSystemd, hasSystemd } from '../support/systemd.js';

const needsSystemd = hasSystemd ? test : test.skip;

needsSystemd(
  'the unit is ready once the tree is readable, is restarted after a crash, and stops cleanly',
  async (t) => {
    const image = fileOf('images/0.sif', tinyImage(0));
    const repository = repositoryOf('test-org/pool', [taskMapFile({ v: { t0: image.path } }), image]);
    const hub = await FakeHub.start({ repositories: [repository] });
    t.teardown(() => hub.close());
    const { run } = await bootSystemd(t);
    await run(
      `mkdir -p /etc/tmaxfs && printf '%s\\n' HF_ENDPOINT=${hub.endpoint} TMAXFS_REPO=test-org/pool > /etc/tmaxfs/tmax.env`,
    );

    const started = await run('systemctl start tmaxfs@tmax && sha256sum /tmax/v/t0.sif');
    t.is(started.exitCode, 0, started.stderr);
    t.is(started.stdout, `${image.sha256}  /tmax/v/t0.sif`);
    t.regex(
      (await run('systemctl status tmaxfs@tmax')).stdout,
      /Status: "test-org\/pool@.* is mounted on \/tmax: v 1"/,
    );

    await run('systemctl kill --signal KILL tmaxfs@tmax');
    // Comes back by itself, over the mount that the dead one left.
    const back = await run(
      'until [ "$(systemctl show tmaxfs@tmax --property NRestarts,ActiveState --value | sort | xargs)" = "1 active" ]; do sleep 0.2; done; sha256sum /tmax/v/t0.sif',
    );
    t.is(back.stdout, `${image.sha256}  /tmax/v/t0.sif`);
    t.is((await run('grep -c " /tmax " /proc/mounts')).stdout, '1', 'no dead mount lies below');

    const stopped = await run('systemctl stop tmaxfs@tmax; systemctl show tmaxfs@tmax --property Result --value');
    t.is(stopped.stdout, 'success');
    t.is((await run('grep -c " /tmax " /proc/mounts')).stdout, '0');
    t.is((await run('ls /tmax')).stdout, '');

    await run('echo TMAXFS_REVISION=nowhere >> /etc/tmaxfs/tmax.env');
    const refused = await run('systemctl start tmaxfs@tmax');
    t.not(refused.exitCode, 0, 'a start that fails is seen to fail');
    t.regex((await run('journalctl --unit tmaxfs@tmax --no-pager')).stdout, /no revision \\"nowhere\\"/);
  },
);
