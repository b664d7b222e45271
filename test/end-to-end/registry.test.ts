/** Mounts that publish to a real registry and fetch from it; a real apptainer pulls from it as well. */

import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { apptainer, hasApptainer } from '../support/apptainer.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool, type MountedPoolOptions } from '../support/mounted-pool.js';
import { loggedIn, startRegistry } from '../support/registry.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const small = smallPool(3);
const [d0 = '', d1 = '', d2 = ''] = small.files.map(({ sha256 }) => sha256);
const node = (t: ExecutionContext, options: Partial<MountedPoolOptions>) =>
  MountedPool.start(t, { ...small, ...options });
const fetchedOf = (pool: MountedPool) => [
  ...new Set(pool.hub.requests.filter(({ server }) => server === 'cdn').map(({ file }) => file)),
];
const digestOf = async (pool: MountedPool, name: string) =>
  (await pool.run('sha256sum', [pool.path(name)])).stdout.slice(0, 64);

test.serial('what one node has fetched others pull from the registry, and so does apptainer', async (t) => {
  const server = await startRegistry(t, { auth: 'token' });
  const env = { DOCKER_CONFIG: loggedIn(t, server) };
  const first = await node(t, { args: ['--publish', server.place], env });
  for (const [index, file] of small.files.entries()) t.is(await digestOf(first, `v/t${index}.sif`), file.sha256);
  t.is(fetchedOf(first).length, 3);
  await eventually('all is published', async () => {
    const [line] = (await first.status()).publishing;
    return (line?.name === server.place && line.published === 3) || undefined;
  });
  // Without a login: the registry lets anybody pull.
  const second = await node(t, { args: ['--source', server.place, '--source', 'hub'] });
  for (const [index, file] of small.files.entries()) t.is(await digestOf(second, `v/t${index}.sif`), file.sha256);
  t.deepEqual(fetchedOf(second), []);
  t.truthy(await second.logged(({ source }) => source === server.place));
  if (!hasApptainer) return;
  const folder = temporaryFolder(t);
  const image = `oras://127.0.0.1:${server.port}/pool/images:sif-${d0}`;
  const { exitCode, stderr } = await apptainer(['pull', '--no-https', join(folder, 'pulled.sif'), image], { folder });
  t.is(exitCode, 0, stderr);
});

test.serial('a registry that ends in the middle costs no open its image, and is told of', async (t) => {
  const server = await startRegistry(t);
  const pool = await node(t, { args: ['--publish', server.place] });
  t.is(await digestOf(pool, 'v/t0.sif'), d0);
  await eventually('it is published', async () => (await pool.status()).publishing[0]?.published === 1 || undefined);
  await server.stop();
  t.is(await digestOf(pool, 'v/t1.sif'), d1);
  const failure = await eventually('it is told', async () => (await pool.status()).publishing[0]?.failure ?? undefined);
  t.is(failure.errno, 'EHOSTUNREACH');
  t.is(await digestOf(pool, 'v/t2.sif'), d2);
});

test.serial('what is no registry is refused before anything is mounted', async (t) => {
  const pool = await MountedPool.prepare(t, small);
  for (const option of ['--source', '--publish']) {
    const { exitCode, stderr } = await pool.tmaxfs([...pool.mountCommand, option, 'oci://user:secret@host/pool']);
    t.not(exitCode, 0);
    t.regex(stderr, /a registry is named by oci:\/\/host/);
    t.notRegex(stderr, /secret/);
  }
});
