/** A real nginx on loopback: a CDN, a mirror, a proxy. */

import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { getText } from './scrape.js';

export interface Nginx {
  /** Requests that were answered so far: one line each, as `LOG_FORMAT` has it. */
  log(): Promise<NginxRequest[]>;
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
const START_LIMIT_MS = 30_000;
/** Of ip_local_port_range, unless an administrator says otherwise. */
const FIRST_PORT_OF_THE_KERNEL = 32_768;

/** Starts nginx with these `server` blocks; `folder` takes its files, `port` is one that it listens at, on 127.0.0.1. */
export async function startNginx(folder: string, port: number, servers: string): Promise<Nginx> {
  const configuration = join(folder, 'nginx.conf');
  const accessLog = join(folder, 'access.log');
  const socketPath = join(folder, 'log.sock');
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  writeFileSync(
    configuration,
    `daemon off; ${process.getuid?.() === 0 ? 'user root;' : ''} worker_processes 1; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
    events { worker_connections 2048; }
    http {
      log_format requests ${LOG_FORMAT};
      access_log ${accessLog} requests;
      sendfile on; tcp_nopush on; default_type application/octet-stream; keepalive_requests 100000; proxy_max_temp_file_size 0;
      ${temporary.join(' ')}
      ${servers}
      server { listen unix:${socketPath}; access_log off; return 200; }
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
    log: async () => {
      // Its only worker writes a line when all of an answer was sent: before it answers anything else, if not before we have it.
      await getText({ socketPath });
      return readFileSync(accessLog, 'utf8').split('\n').filter(Boolean).map(parseLine);
    },
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

/** A port of loopback that is free, and stays so: none of those that the kernel gives to whoever asks for any. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, FIRST_PORT_OF_THE_KERNEL);
    const server = createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
}
