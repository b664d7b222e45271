/** What others have made to stand between a cluster and the Hub, each on a machine of its own. */

import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { execaSync } from 'execa';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import type { Cluster } from './cluster.js';
import type { Engine, Lie } from './cluster-trials.js';
import { eventually } from './mount-client.js';
import { hubCacheFile } from './nginx-file.js';
import type { Machine } from './site.js';

const NGINX_PORT = 80;
const GLUSTER_PORT = 24_007;
const REGISTRY_PORT = 5000;
const REPOSITORY = 'pool/images';
const DISK_BYTES = 64 * 2 ** 20;

const isInstalled = (program: string, ...args: string[]) => !execaSync(program, args, { reject: false }).failed;

export const hasNginx = isInstalled('nginx', '-v');
export const hasRegistry = isInstalled('docker-registry', '--version');
export const hasGluster = isInstalled('glusterfsd', '--version') && isInstalled('glusterfs', '--version');

/** An nginx that keeps what it has fetched from the Hub, by the configuration of docs/cluster. */
export async function startNginxCache(cluster: Cluster): Promise<Engine> {
  const { machine, disk, folder } = await engineMachine(cluster, 'nginx');
  await machine.must(['mkdir', join(disk, 'cache')]);
  const temporary = ['client_body', 'fastcgi', 'uwsgi', 'scgi', 'proxy'];
  const configuration = join(folder, 'nginx.conf');
  writeFileSync(
    configuration,
    `daemon off; user root; worker_processes 2; pid ${folder}/pid; error_log ${folder}/error.log;
    events { worker_connections 1024; }
    http {
      access_log off;
      ${temporary.map((name) => `${name}_temp_path ${disk}/${name};`).join(' ')}
      ${hubCacheFile(folder, String(NGINX_PORT), cluster.hub, `${disk}/cache`)}
    }`,
  );
  await machine.start(['nginx', '-c', configuration], join(folder, 'output'));
  await answers(machine.address, NGINX_PORT);
  const source = `http://${machine.address}:${NGINX_PORT}/datasets/{repo}/resolve/{commit}/{path}`;
  return {
    machine,
    disk,
    words: ['--source', source, '--source', 'hub'],
    hasTurns: true,
    // It is the first to ask for the image, and keeps what it is given.
    plant: async (file, bytes, lie) => {
      cluster.hub.fault({ server: 'cdn', path: file.path, fault: NGINX_LIES[lie](bytes) });
    },
  };
}

const NGINX_LIES: Readonly<Record<Lie, (bytes: Buffer) => Fault>> = {
  'wrong bytes': () => ({ kind: 'corrupt', atByte: 9000 }),
  truncated: ({ length }) => ({ kind: 'truncate', toBytes: length }),
  gzip: () => ({ kind: 'gzip' }),
};

/** A folder on a GlusterFS of one brick, which every node has mounted at the same place. */
export async function startSharedFolder(cluster: Cluster): Promise<Engine & { readonly path: string }> {
  const { machine, disk, folder } = await engineMachine(cluster, 'gluster');
  const [brick, path] = [join(disk, 'brick'), join(folder, 'shared')];
  mkdirSync(path);
  await machine.must(['mkdir', brick]);
  const [server, client] = [join(folder, 'server.vol'), join(folder, 'client.vol')];
  writeFileSync(server, glusterServer(brick, machine.address));
  writeFileSync(client, glusterClient(machine.address));
  const [log, pid] = [join(folder, 'server.log'), join(folder, 'pid')];
  await machine.start(
    ['glusterfsd', '--no-daemon', '--volfile', server, '--log-file', log, '--pid-file', pid],
    join(folder, 'output'),
  );
  await answers(machine.address, GLUSTER_PORT);
  await Promise.all(
    cluster.nodes.map(async ({ machine: node, home }) => {
      await node.must(['glusterfs', '--volfile', client, '--log-file', join(home, 'gluster.log'), path]);
      const look = ['sh', '-c', `grep -q ' ${path} fuse.glusterfs ' /proc/mounts && ls ${path}`];
      await eventually('the shared folder is there', async () => (await node.run(look)).exitCode === 0 || undefined);
    }),
  );
  return {
    machine,
    disk,
    path,
    words: ['--publish', `dir:${path}`],
    hasTurns: true,
    plant: async ({ sha256 }, bytes) => {
      const place = join(brick, 'blobs', sha256.slice(0, 2), sha256);
      writeFileSync(join(folder, 'planted'), bytes);
      await machine.must(['install', '-D', join(folder, 'planted'), place]);
    },
  };
}

/** A registry to which nodes publish. */
export async function startRegistry(cluster: Cluster): Promise<Engine> {
  const { machine, disk, folder } = await engineMachine(cluster, 'registry');
  const configuration = join(folder, 'config.yml');
  writeFileSync(
    configuration,
    `version: 0.1
log: { level: error, accesslog: { disabled: true } }
storage: { filesystem: { rootdirectory: ${disk} } }
http: { addr: ":${REGISTRY_PORT}" }\n`,
  );
  await machine.start(['docker-registry', 'serve', configuration], join(folder, 'output'));
  await answers(machine.address, REGISTRY_PORT);
  const storage = join(disk, 'docker', 'registry', 'v2');
  return {
    machine,
    disk,
    words: ['--publish', `oci+http://${machine.address}:${REGISTRY_PORT}/${REPOSITORY}`],
    hasTurns: false,
    plant: async ({ sha256 }, bytes) => {
      const place = (...segments: string[]) => join(storage, ...segments);
      writeFileSync(join(folder, 'data'), bytes);
      writeFileSync(join(folder, 'link'), `sha256:${sha256}`);
      const data = place('blobs', 'sha256', sha256.slice(0, 2), sha256, 'data');
      const link = place('repositories', REPOSITORY, '_layers', 'sha256', sha256, 'link');
      await machine.must(['install', '-D', join(folder, 'data'), data]);
      await machine.must(['install', '-D', join(folder, 'link'), link]);
    },
  };
}

function glusterServer(brick: string, address: string): string {
  return `
    volume disk
      type storage/posix
      option directory ${brick}
    end-volume
    volume locks
      type features/locks
      subvolumes disk
    end-volume
    volume server
      type protocol/server
      option transport-type tcp
      option transport.socket.bind-address ${address}
      option transport.socket.listen-port ${GLUSTER_PORT}
      option auth.addr.locks.allow *
      subvolumes locks
    end-volume\n`;
}

function glusterClient(address: string): string {
  return `
    volume client
      type protocol/client
      option transport-type tcp
      option remote-host ${address}
      option remote-port ${GLUSTER_PORT}
      option remote-subvolume locks
    end-volume\n`;
}

/** A machine, a small disk that it alone sees, and a folder that is seen by all. */
async function engineMachine(
  cluster: Cluster,
  name: string,
): Promise<{ readonly machine: Machine; readonly disk: string; readonly folder: string }> {
  const machine = await cluster.site.machine();
  const folder = join(cluster.folder, name);
  const disk = join(folder, 'disk');
  mkdirSync(disk, { recursive: true });
  await machine.must(['mount', '-t', 'tmpfs', '-o', `size=${DISK_BYTES}`, 'tmpfs', disk]);
  return { machine, disk, folder };
}

/** Returns once a server takes connections. */
async function answers(address: string, port: number): Promise<void> {
  await eventually(`${address}:${port} answers`, async () => {
    const socket = connect(port, address);
    const isConnected = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    return isConnected || undefined;
  });
}
