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
import type { Machine } from './site.js';

const NGINX_PORT = 80;
const GLUSTER_PORT = 24_007;
const DISK_BYTES = 64 * 2 ** 20;

const isInstalled = (program: string, ...args: string[]) => !execaSync(program, args, { reject: false }).failed;

export const hasNginx = isInstalled('nginx', '-v');
export const hasGluster = isInstalled('glusterfsd', '--version') && isInstalled('glusterfs', '--version');

/** An nginx that keeps what it has fetched from the Hub. */
export async function startNginxCache(cluster: Cluster): Promise<Engine> {
  const { machine, disk, folder } = await engineMachine(cluster, 'nginx');
  const temporary = ['client_body', 'fastcgi', 'uwsgi', 'scgi', 'proxy'];
  const configuration = join(folder, 'nginx.conf');
  writeFileSync(
    configuration,
    `daemon off; user root; worker_processes 2; pid ${folder}/pid; error_log ${folder}/error.log;
    events { worker_connections 1024; }
    http {
      access_log off;
      ${temporary.map((name) => `${name}_temp_path ${disk}/${name};`).join(' ')}
      proxy_cache_path ${disk}/cache levels=1:2 keys_zone=images:1m use_temp_path=off;
      server {
        listen ${machine.address}:${NGINX_PORT};
        location / {
          proxy_cache images; proxy_cache_key $uri; proxy_cache_valid 200 1d; proxy_ignore_headers Cache-Control Expires Set-Cookie Vary;
          proxy_cache_lock on; proxy_cache_lock_timeout 1h; proxy_cache_lock_age 1h;
          proxy_pass http://127.0.0.1:8081;
        }
      }
      server {
        listen 127.0.0.1:8081;
        location / { proxy_pass ${cluster.hub.endpoint}; proxy_intercept_errors on; error_page 302 307 = @storage; }
        location @storage { set $place $upstream_http_location; proxy_pass $place; }
      }
    }`,
  );
  await machine.start(['nginx', '-c', configuration], join(folder, 'output'));
  await answers(machine.address, NGINX_PORT);
  const source = `http://${machine.address}:${NGINX_PORT}/datasets/{repo}/resolve/{commit}/{path}`;
  return {
    machine,
    disk,
    words: ['--source', source, '--source', 'hub'],
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
    plant: async ({ sha256 }, bytes) => {
      const place = join(brick, 'blobs', sha256.slice(0, 2), sha256);
      writeFileSync(join(folder, 'planted'), bytes);
      await machine.must(['install', '-D', join(folder, 'planted'), place]);
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
