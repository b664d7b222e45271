/** A real nginx on loopback: a CDN, a mirror, a proxy. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

export interface Nginx {
  /** Requests so far: one line each, as `LOG_FORMAT` has it. */
  log(): NginxRequest[];
  stop(): Promise<void>;
  /** To all of its processes at once. */
  signal(name: NodeJS.Signals): void;
  /** Ends it whatever state it is in. */
  kill(): Promise<void>;
}

export interface NginxRequest {
  readonly server: string;
  readonly method: string;
  readonly uri: string;
  readonly status: string;
  readonly range: string;
  readonly authorization: string;
}

const LOG_FORMAT = `'$server_addr\\t$request_method\\t$request_uri\\t$status\\t$http_range\\t$http_authorization'`;
const START_LIMIT_MS = 10_000;

/** Starts nginx with these `server` blocks; `folder` takes its files, `port` is one that it listens at, on 127.0.0.1. */
export async function startNginx(folder: string, port: number, servers: string): Promise<Nginx> {
  const configuration = join(folder, 'nginx.conf');
  const accessLog = join(folder, 'access.log');
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  writeFileSync(
    configuration,
    `daemon off; ${process.getuid?.() === 0 ? 'user root;' : ''} worker_processes 2; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
    events { worker_connections 2048; }
    http {
      log_format requests ${LOG_FORMAT};
      access_log ${accessLog} requests;
      sendfile on; tcp_nopush on; default_type application/octet-stream; keepalive_requests 100000; proxy_max_temp_file_size 0;
      ${temporary.join(' ')}
      ${servers}
    }`,
  );
  const child = spawn('nginx', ['-c', configuration], {
    stdio: ['ignore', 'ignore', 'inherit'],
    // A process group of its own, for signals that all of it is to get.
    detached: true,
  });
  const exited = once(child, 'exit');
  const signal = (name: NodeJS.Signals): void => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) process.kill(-child.pid, name);
  };
  // Nobody else would end it where the tests are ended before their teardown.
  const onExit = (): void => signal('SIGKILL');
  process.once('exit', onExit);
  void exited.then(() => process.removeListener('exit', onExit));
  await isListening(port, 'nginx');
  return {
    log: () => readFileSync(accessLog, 'utf8').split('\n').filter(Boolean).map(parseLine),
    stop: async () => {
      child.kill();
      await exited;
    },
    signal,
    kill: async () => {
      signal('SIGKILL');
      await exited;
    },
  };
}

function parseLine(line: string): NginxRequest {
  const [server = '', method = '', uri = '', status = '', range = '', authorization = ''] = line.split('\t');
  return { server, method, uri, status, range, authorization };
}

/** Resolves once somebody answers at a port of loopback. `program`: who is to. */
export async function isListening(port: number, program: string): Promise<void> {
  const endMs = performance.now() + START_LIMIT_MS;
  while (performance.now() < endMs) {
    const socket = connect(port, '127.0.0.1');
    const isConnected = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isConnected) return;
    await delay(20);
  }
  throw new Error(`${program} does not answer at port ${port}: is it installed?`);
}

/** A port of loopback that is free at this moment. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no free port');
  return address.port;
}
