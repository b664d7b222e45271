/** The batch script and the epilog of docs/slurm, as they are, under a real Slurm. */

import test, { type ExecutionContext } from 'ava';
import { FakeHub } from '../../src/demo/fake-hub.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { fileOf, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { tinyImage } from '../support/sif-writer.js';
import { startSlurm } from '../support/slurm.js';
import { type BootedSystem, bootSystemd, hasSlurm } from '../support/systemd.js';

const needsSlurm = hasSlurm ? test.serial : test.serial.skip;

const IMAGE = fileOf('images/0.sif', tinyImage(0));
const SCRIPTS = '/opt/tmaxfs/docs/slurm';
const ends: (() => unknown)[] = [];
let booted: BootedSystem;
let hub: FakeHub;

test.before(async () => {
  if (!hasSlurm) return;
  hub = await FakeHub.start({
    repositories: [repositoryOf('test-org/pool', [taskMapFile({ v: { t0: IMAGE.path } }), IMAGE])],
  });
  ends.push(() => hub.close());
  booted = await bootSystemd({ teardown: (end) => ends.push(end) });
  await startSlurm(booted);
  await booted.run('useradd --create-home --shell /bin/bash alice; chmod 666 /dev/fuse');
});
test.after.always(async () => {
  for (const end of ends.reverse()) await end();
});

/**
 * Everything of a job is killed at once, without a warning: what is left of it for a moment would clean up. The brackets keep the
 * patterns from finding the shell that looks for them.
 */
async function kill(job: string): Promise<void> {
  const patterns = '-e "[s]lurm_script" -e "[j]ob-name=tmaxfs" -e "[-]-foreground"';
  await booted.run(`kill -KILL $(grep --no-messages -l ${patterns} /proc/[0-9]*/cmdline | cut -d / -f 3)`);
  await ended(job);
}

/** Runs a shell script as a user of the cluster, whose jobs inherit its variables. */
async function asAlice(script: string): Promise<string> {
  const variables = `export HF_ENDPOINT=${hub.endpoint} TMAXFS_REPO=test-org/pool`;
  const { stdout, stderr } = await booted.run(`runuser -l alice -c '${variables}; ${script}' 2>&1`);
  return `${stdout}${stderr}`;
}

/** Submits a job that has mounted and goes on until it is ended; returns its number. */
async function runningJob(): Promise<string> {
  const job = await asAlice(
    `rm -f mounted; sbatch --parsable ${SCRIPTS}/tmaxfs.sbatch sh -c "touch mounted; sleep 600"`,
  );
  await booted.run('until [ -e /home/alice/mounted ]; do sleep 0.2; done');
  return job;
}

async function ended(job: string): Promise<void> {
  await booted.run(`while squeue --noheader --jobs ${job} | grep -q .; do sleep 0.2; done`);
}

async function mounts(): Promise<string> {
  return (await booted.run('grep -o "/tmp/tmax-[^ ]*" /proc/mounts')).stdout;
}

async function hasNoDaemon(t: ExecutionContext): Promise<void> {
  t.is((await booted.run('grep --no-messages -l -e "[-]-foreground" /proc/[0-9]*/cmdline')).stdout, '');
}

needsSlurm('the batch script mounts, runs its command, and leaves nothing behind', async (t) => {
  const output = await asAlice(
    `sbatch --wait --output=out ${SCRIPTS}/tmaxfs.sbatch sh -c "sha256sum \\$TMAX/v/t0.sif; ls \\$SWERL_APPTAINER_SIF_DIR"; echo exit $?; cat out`,
  );
  t.regex(output, /^exit 0$/m);
  t.regex(output, new RegExp(`^${IMAGE.sha256}  /tmp/tmax-alice-\\d+/v/t0\\.sif$`, 'm'));
  t.regex(output, /^0\.sif$/m);
  t.is(await mounts(), '');
  t.is((await booted.run('ls -d /tmp/tmax-*')).stdout, '', 'not even the folder');
  await hasNoDaemon(t);
});

needsSlurm('the command’s exit code is the job’s, and a mount that can’t be made is said at once', async (t) => {
  t.regex(await asAlice(`sbatch --wait ${SCRIPTS}/tmaxfs.sbatch sh -c "exit 7"; echo exit $?`), /^exit 7$/m);
  const refused = await asAlice(
    `TMAXFS_REVISION=nowhere sbatch --wait --output=out ${SCRIPTS}/tmaxfs.sbatch true; echo exit $?; cat out`,
  );
  t.regex(refused, /^exit 1$/m);
  t.regex(refused, /no revision/);
  t.regex(refused, /^tmaxfs could not mount \/tmp\/tmax-alice-\d+: the reason is above$/m);
});

needsSlurm('a job that is cancelled unmounts in the time that Slurm gives it', async (t) => {
  const job = await runningJob();
  t.not(await mounts(), '');
  await asAlice(`scancel ${job}`);
  await ended(job);
  await hasNoDaemon(t);
  t.is(await mounts(), '');
});

needsSlurm('what a job leaves that was killed at once, the user’s next job takes away', async (t) => {
  const job = await runningJob();
  await kill(job);
  await hasNoDaemon(t);
  t.is(await mounts(), `/tmp/tmax-alice-${job}`, 'a dead mount');
  t.regex(await asAlice(`sbatch --wait ${SCRIPTS}/tmaxfs.sbatch true; echo exit $?`), /^exit 0$/m);
  t.is(await mounts(), '');
});

needsSlurm('with the epilog not even that is left', async (t) => {
  await booted.run(`echo Epilog=${SCRIPTS}/epilog.sh > /etc/slurm/more.conf; scontrol reconfigure`);
  const job = await runningJob();
  await kill(job);
  await booted.run('while grep -q /tmp/tmax- /proc/mounts; do sleep 0.2; done');
  t.is(await mounts(), '');
  t.notRegex((await booted.run('sinfo --noheader --format %T')).stdout, /drain/);
});

needsSlurm('the prolog starts the service for the job, and the task prolog points its tasks at it', async (t) => {
  await booted.run(
    `mkdir -p /etc/tmaxfs; printf '%s\\n' HF_ENDPOINT=${hub.endpoint} TMAXFS_REPO=test-org/pool > /etc/tmaxfs/tmax.env
     printf '%s\\n' Prolog=${SCRIPTS}/prolog.sh TaskProlog=${SCRIPTS}/task-prolog.sh > /etc/slurm/more.conf; scontrol reconfigure`,
  );
  const output = await asAlice('srun sh -c "sha256sum \\$TMAX/v/t0.sif; ls \\$SWERL_APPTAINER_SIF_DIR"');
  t.is(output, `${IMAGE.sha256}  /tmax/v/t0.sif\n0.sif`);
});
