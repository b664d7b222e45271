/**
 * How fast one blob, and several at once, come from a server on loopback onto disk with their digest, against
 * `curl -o f && sha256sum f` on the same machine. In turns, medians, so that a busy neighbour hits both alike.
 *
 * Needs nginx and curl. Usage: node build/bench/fetch-throughput.js [MiB] [rounds] [connections]
 */

import { execFile, spawn } from 'node:child_process';
import { createHash, randomFillSync } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { HubSource } from '../src/sources/hub-source.js';
import type { BlobAddress } from '../src/sources/source.js';

const MIB = 1024 * 1024;
const [mebibytes = 500, rounds = 5, connections = 4] = process.argv.slice(2).map(Number);
const PARALLEL_BLOBS = 4;
const run = promisify(execFile);
const log = pino({ level: 'info' });

const folder = await mkdtemp(join(tmpdir(), 'tmaxfs-throughput-'));
const sizeBytes = mebibytes * MIB;
const blob = await makeBlob();
const port = await freePort();
const nginx = await startNginx(port);
const source = new HubSource({
  endpoint: `http://127.0.0.1:${port}`,
  token: async () => undefined,
  userAgent: 'tmaxfs-bench',
  connectTimeoutMs: 5000,
  headersTimeoutMs: 5000,
  idleTimeoutMs: 5000,
  minBytesPerSecond: 0,
  speedWindowMs: 5000,
  connectionsPerBlob: connections,
  log,
});

const contenders: Record<string, () => Promise<number>> = {
  'curl && sha256sum': () => curl(1),
  tmaxfs: () => fetchBlobs(1),
  [`${PARALLEL_BLOBS} x curl && sha256sum`]: () => curl(PARALLEL_BLOBS),
  [`${PARALLEL_BLOBS} x tmaxfs`]: () => fetchBlobs(PARALLEL_BLOBS),
};
const seconds = new Map(Object.keys(contenders).map((name) => [name, [] as number[]]));
/** Worst and typical delay of this thread's timers during a fetch. */
const delaysMs = { p50: [] as number[], max: [] as number[] };
try {
  for (let round = 0; round <= rounds; round += 1) {
    for (const [name, contend] of Object.entries(contenders)) {
      const took = await contend();
      // The first round fills the page cache and starts the threads.
      if (round > 0) seconds.get(name)?.push(took);
    }
  }
  for (const [name, took] of seconds) {
    const middle = median(took);
    const blobs = name.startsWith(String(PARALLEL_BLOBS)) ? PARALLEL_BLOBS : 1;
    log.info({ seconds: Number(middle.toFixed(3)), mibPerSecond: Math.round((blobs * mebibytes) / middle) }, name);
  }
  log.info(
    { p50Ms: median(delaysMs.p50), maxMs: Math.max(...delaysMs.max) },
    'delay of the main thread during a fetch',
  );
} finally {
  await source.close();
  nginx.kill();
  await once(nginx, 'exit');
  await rm(folder, { recursive: true });
}

async function fetchBlobs(count: number): Promise<number> {
  const startedAt = performance.now();
  const partials = Array.from({ length: count }, (_, index) => join(folder, `partial-${index}`));
  const loop = monitorEventLoopDelay({ resolution: 5 });
  loop.enable();
  const downloads = await Promise.all(
    partials.map((partial) =>
      source.download(blob, partial, { signal: new AbortController().signal, onProgress: () => {} }),
    ),
  );
  loop.disable();
  delaysMs.p50.push(loop.percentile(50) / 1e6);
  delaysMs.max.push(loop.max / 1e6);
  const took = (performance.now() - startedAt) / 1000;
  if (downloads.some(({ sha256 }) => sha256 !== blob.sha256)) throw new Error('the bytes are wrong');
  for (const partial of partials) await rm(partial);
  return took;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}

async function curl(count: number): Promise<number> {
  const startedAt = performance.now();
  const copies = Array.from({ length: count }, (_, index) => join(folder, `curl-${index}`));
  const url = `http://127.0.0.1:${port}/datasets/${blob.repository}/resolve/${blob.commit}/${blob.path}`;
  const sums = await Promise.all(
    copies.map((copy) => run('sh', ['-c', `curl -sSLo ${copy} ${url} && sha256sum ${copy}`])),
  );
  const took = (performance.now() - startedAt) / 1000;
  if (sums.some(({ stdout }) => !stdout.startsWith(blob.sha256))) throw new Error('the bytes are wrong');
  for (const copy of copies) await rm(copy);
  return took;
}

async function makeBlob(): Promise<BlobAddress> {
  await mkdir(join(folder, 'storage'));
  const file = await open(join(folder, 'storage', 'blob.sif'), 'w');
  const hash = createHash('sha256');
  const chunk = Buffer.alloc(MIB);
  for (let written = 0; written < sizeBytes; written += MIB) {
    randomFillSync(chunk);
    hash.update(chunk);
    await file.write(chunk);
  }
  await file.close();
  return { repository: 'org/pool', commit: 'a'.repeat(40), path: 'blob.sif', sizeBytes, sha256: hash.digest('hex') };
}

/** The Hub on 127.0.0.1, its storage on 127.0.0.2: a redirect and a static file. */
async function startNginx(listenPort: number) {
  const configuration = join(folder, 'nginx.conf');
  await writeFile(
    configuration,
    `daemon off; ${process.getuid?.() === 0 ? 'user root;' : ''} worker_processes 1; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
    events { worker_connections 512; }
    http {
      access_log off; sendfile on; default_type application/octet-stream;
      client_body_temp_path ${folder}/t1; proxy_temp_path ${folder}/t2; fastcgi_temp_path ${folder}/t3;
      uwsgi_temp_path ${folder}/t4; scgi_temp_path ${folder}/t5;
      server { listen 127.0.0.1:${listenPort}; return 302 http://127.0.0.2:${listenPort}/blob.sif; }
      server { listen 127.0.0.2:${listenPort}; root ${folder}/storage; }
    }`,
  );
  const child = spawn('nginx', ['-c', configuration], { stdio: 'inherit' });
  for (let attempt = 0; attempt < 100; attempt += 1) {
    const socket = connect(listenPort, '127.0.0.1');
    const connected = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (connected) return child;
    await delay(50);
  }
  throw new Error('nginx does not answer');
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no free port');
  return address.port;
}
