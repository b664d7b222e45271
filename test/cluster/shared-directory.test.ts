/** A cluster that shares a folder of a real network file system, GlusterFS. */

import anyTest from 'ava';
import { Cluster, POOL_NAME } from '../support/cluster.js';
import { engineTrials } from '../support/cluster-trials.js';
import { hasGluster, startSharedFolder } from '../support/engines.js';
import { canMakeSite } from '../support/site.js';

const test = canMakeSite && hasGluster ? anyTest.serial : anyTest.serial.skip;

test('nodes that seed a shared folder at one time share the work: each image is brought by one of them', async (t) => {
  const cluster = await Cluster.start(t, { nodes: 4, images: 60 });
  const { path } = await startSharedFolder(cluster);
  const results = await Promise.all(
    cluster.nodes.map((node) => {
      const where = ['--variant', 'v', '--to', `dir:${path}`, '--repo', POOL_NAME, '--cache-dir', node.cacheDirectory];
      return node.tmaxfs(['seed', ...where]);
    }),
  );
  for (const { exitCode, stderr } of results) t.is(exitCode, 0, stderr);
  const { resolver, storage } = cluster.hits();
  for (const hits of [resolver, storage]) {
    t.is(hits.size, cluster.files.length);
    t.deepEqual([...new Set(hits.values())], [1]);
  }
  const [node] = cluster.nodes;
  const places = cluster.files.map(({ sha256 }) => `${path}/blobs/${sha256.slice(0, 2)}/${sha256}`);
  const sums = await node?.machine.must(['sha256sum', ...places]);
  t.is(sums, cluster.files.map(({ sha256 }, index) => `${sha256}  ${places[index]}`).join('\n'));
});

engineTrials(hasGluster, startSharedFolder);
