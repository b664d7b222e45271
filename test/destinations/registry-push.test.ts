/** Where a registry may send an upload to, and what is told there. */

import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { RegistryPush } from '../../src/destinations/registry-push.js';
import { systemErrorCode, TmaxError } from '../../src/errors.js';
import { parseRegistry } from '../../src/sources/registry.js';
import { blobOf } from '../support/blob-cache.js';
import { eventually } from '../support/mount-client.js';
import { temporaryFolder } from '../support/temporary.js';

const BLOB = blobOf('a', 1000);
const SECRET = Buffer.from('user:password').toString('base64');

interface Upload {
  readonly url: string | undefined;
  readonly authorization: string | undefined;
}

async function serve(t: ExecutionContext, answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function fileOf(t: ExecutionContext): string {
  const path = join(temporaryFolder(t), 'blob');
  writeFileSync(path, BLOB.content);
  return path;
}

/** Uploads, `location` being what the registry answers of where to. */
async function pushBy(t: ExecutionContext, location: (elsewhere: string) => string, path = fileOf(t)) {
  const uploads: Upload[] = [];
  const take = ({ url, headers: { authorization } }: IncomingMessage) => uploads.push({ url, authorization });
  const elsewhere = await serve(t, (request, response) => {
    take(request);
    request.resume().on('end', () => response.writeHead(201).end());
  });
  const host = await serve(t, (request, response) => {
    const { method, headers } = request;
    if (headers.authorization === undefined) response.writeHead(401, { 'www-authenticate': 'Basic realm="x"' }).end();
    else if (method === 'HEAD') response.writeHead(404).end();
    else if (method === 'POST') response.writeHead(202, { location: location(elsewhere) }).end();
    else {
      take(request);
      request.resume().on('end', () => response.writeHead(201).end());
    }
  });
  const deadlines = { connectTimeoutMs: 5000, headersTimeoutMs: 20_000, idleTimeoutMs: 20_000, speedWindowMs: 10_000 };
  const settings = { ...deadlines, minBytesPerSecond: 0, userAgent: 'test' };
  const push = new RegistryPush(parseRegistry(`oci://${host}/a/b`), settings);
  push.secret = SECRET;
  return { uploads, push: () => push.push(BLOB.address, path) };
}

test.serial(
  'a registry that answers before the end of the file was read leaves nothing that is waited for',
  async (t) => {
    const path = join(temporaryFolder(t), 'fifo');
    execFileSync('mkfifo', [path]);
    const { push } = await pushBy(t, () => '/v2/a/b/blobs/uploads/1', path);
    const timers = () => process.getActiveResourcesInfo().filter((one) => one === 'Timeout').length;
    const before = timers();
    const pushed = push();
    const writer = await open(path, 'w');
    await writer.write(BLOB.content);
    t.is(await pushed, 'written');
    await writer.close();
    await eventually('its end was read', () => !hasReader(path) || undefined);
    t.is(timers(), before);
  },
);

/** Whether anybody has a FIFO open to read. */
function hasReader(path: string): boolean {
  try {
    closeSync(openSync(path, constants.O_WRONLY | constants.O_NONBLOCK));
    return true;
  } catch (error) {
    if (systemErrorCode(error) === 'ENXIO') return false;
    throw error;
  }
}

test('another host gets the upload that it is sent, and no password', async (t) => {
  const { uploads, push } = await pushBy(t, (elsewhere) => `http://name:word@${elsewhere}/put?session=1`);
  t.is(await push(), 'written');
  t.deepEqual(uploads[0], { url: `/put?session=1&digest=sha256:${BLOB.address.sha256}`, authorization: undefined });
});

test('what stands behind a "#" keeps no registry from being told the digest', async (t) => {
  const { uploads, push } = await pushBy(t, () => '/v2/a/b/blobs/uploads/1#part');
  t.is(await push(), 'written');
  const url = `/v2/a/b/blobs/uploads/1?digest=sha256:${BLOB.address.sha256}`;
  t.deepEqual(uploads[0], { url, authorization: `Basic ${SECRET}` });
});

for (const location of ['file:///etc/passwd', 'ftp://127.0.0.1/x', 'javascript:0']) {
  test(`nothing is sent to ${location}`, async (t) => {
    const { uploads, push } = await pushBy(t, () => location);
    await t.throwsAsync(push, { instanceOf: TmaxError });
    t.deepEqual(uploads, []);
  });
}
