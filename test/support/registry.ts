/** A real registry on loopback (docker-registry), with the ways to log in that it knows, and its garbage collection. */

import { spawn } from 'node:child_process';
import { createPrivateKey, sign, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { execa } from 'execa';
import { freePort, isListening } from './nginx.js';
import { packagePath } from './paths.js';
import { type Lifetime, temporaryFolder } from './temporary.js';

export interface RegistryServer {
  readonly port: number;
  /** As `--source` takes it. */
  readonly place: string;
  /** Below it `docker/registry/v2/blobs/sha256/<2 hex>/<sha256>/data`. */
  readonly storage: string;
  /** Stops it, to be started again. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Removes what no manifest refers to, as its owner does now and then. */
  collectGarbage(): Promise<void>;
}

export const REGISTRY_USER = 'node';
export const REGISTRY_PASSWORD = 'secret';
/** Of that password, by bcrypt. */
const PASSWORD_HASH = '$2b$04$QEOK6xuZKHxtX4HLP3VZxuU/gz8wS3RN0FRgOijIHDp76jIby.2dC';
const REPOSITORY = 'pool/images';

export async function startRegistry(
  t: Lifetime,
  {
    storage = temporaryFolder(t),
    auth = 'none',
    isReadOnly = false,
  }: { readonly storage?: string; readonly auth?: 'none' | 'basic' | 'token'; readonly isReadOnly?: boolean } = {},
): Promise<RegistryServer> {
  const folder = temporaryFolder(t);
  const port = await freePort();
  const configuration = join(folder, 'config.yml');
  const login = { none: async () => '', basic: async () => basicAuth(folder), token: async () => await tokenAuth(t) };
  writeFileSync(
    configuration,
    `version: 0.1
log: { level: error, accesslog: { disabled: true } }
storage:
  filesystem: { rootdirectory: ${storage} }
  delete: { enabled: true }
  maintenance: { readonly: { enabled: ${isReadOnly} } }
http: { addr: "127.0.0.1:${port}" }
${await login[auth]()}`,
  );
  let stop = async () => {};
  const server: RegistryServer = {
    port,
    place: `oci://127.0.0.1:${port}/${REPOSITORY}`,
    storage,
    stop: () => stop(),
    start: async () => {
      const child = spawn('docker-registry', ['serve', configuration], { stdio: ['ignore', 'ignore', 'ignore'] });
      const exited = once(child, 'exit');
      stop = async () => {
        child.kill('SIGKILL');
        await exited;
      };
      await isListening(port, 'docker-registry');
    },
    collectGarbage: async () => {
      await execa('docker-registry', ['garbage-collect', configuration]);
    },
  };
  t.teardown(() => stop());
  await server.start();
  return server;
}

/** A folder for DOCKER_CONFIG, as "docker login" leaves it. */
export function loggedIn(t: Lifetime, { port }: RegistryServer, password = REGISTRY_PASSWORD): string {
  const folder = temporaryFolder(t);
  const auth = Buffer.from(`${REGISTRY_USER}:${password}`).toString('base64');
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ auths: { [`127.0.0.1:${port}`]: { auth } } }));
  return folder;
}

function basicAuth(folder: string): string {
  const file = join(folder, 'htpasswd');
  writeFileSync(file, `${REGISTRY_USER}:${PASSWORD_HASH}\n`);
  return `auth: { htpasswd: { realm: pool, path: ${file} } }`;
}

/** A server that gives tokens which the registry trusts: to anybody for pulling, for pushing to who has the password. */
async function tokenAuth(t: Lifetime): Promise<string> {
  const [certificate, key] = ['certificate.pem', 'key.pem'].map((name) => packagePath('test', 'fixtures', 'tls', name));
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    const [, name = '', actions = ''] = /^repository:(.*):(.*)$/.exec(url.searchParams.get('scope') ?? '') ?? [];
    const expected = `Basic ${Buffer.from(`${REGISTRY_USER}:${REGISTRY_PASSWORD}`).toString('base64')}`;
    const { authorization } = request.headers;
    if (authorization !== undefined && authorization !== expected) {
      response.writeHead(401).end();
      return;
    }
    const granted = authorization === undefined ? ['pull'] : actions.split(',');
    const claims = { access: [{ type: 'repository', name, actions: granted }], aud: url.searchParams.get('service') };
    const token = signedToken(claims, readFileSync(certificate ?? ''), readFileSync(key ?? ''));
    response.end(JSON.stringify({ token, expires_in: 60 }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return `auth: { token: { realm: "http://127.0.0.1:${port}/token", service: registry, issuer: issuer, rootcertbundle: ${certificate} } }`;
}

function signedToken(claims: object, certificate: Buffer, key: Buffer): string {
  const now = Math.floor(Date.now() / 1000);
  const x5c = [new X509Certificate(certificate).raw.toString('base64')];
  const times = { exp: now + 60, nbf: now - 10, iat: now };
  const parts = [
    { typ: 'JWT', alg: 'ES256', x5c },
    { iss: 'issuer', sub: '', jti: String(Math.random()), ...times, ...claims },
  ].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'));
  const signature = sign('sha256', Buffer.from(parts.join('.')), {
    key: createPrivateKey(key),
    dsaEncoding: 'ieee-p1363',
  });
  return [...parts, signature.toString('base64url')].join('.');
}

/** Where the registry keeps the bytes of a blob. */
export function storedBlob(storage: string, sha256: string): string {
  return join(storage, 'docker/registry/v2/blobs/sha256', sha256.slice(0, 2), sha256, 'data');
}
