import { once } from 'node:events';
import { type IncomingHttpHeaders, request } from 'node:http';
import { connect, createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { text } from 'node:stream/consumers';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { type WebDocuments, WebServer } from '../../../src/daemon/metrics/web-server.js';
import { TmaxError } from '../../../src/errors.js';

const silent = pino({ level: 'silent' });
const DOCUMENTS: WebDocuments = {
  '/metrics': () => ({ contentType: 'text/plain', text: 'some 1\n' }),
  '/broken': () => {
    throw new TmaxError('EIO', 'can not');
  },
};

async function serve(t: ExecutionContext, documents: WebDocuments | undefined = DOCUMENTS): Promise<URL> {
  const server = await WebServer.start(0, silent);
  t.teardown(() => server.close());
  if (documents !== undefined) server.show(documents);
  return new URL(server.url);
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

async function ask(url: URL, path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> {
  const sent = request({ host: url.hostname, port: url.port, path, method, headers, agent: false }).end();
  const [response] = await once(sent, 'response');
  return { status: response.statusCode, headers: response.headers, body: await text(response) };
}

test('a document is shown as what it is, for its own page alone', async (t) => {
  const answer = await ask(await serve(t), '/metrics?x');
  t.is(answer.status, 200);
  t.is(answer.body, 'some 1\n');
  t.like(answer.headers, {
    'content-type': 'text/plain',
    'x-content-type-options': 'nosniff',
    'cross-origin-resource-policy': 'same-origin',
    'cache-control': 'no-store',
  });
  t.is(answer.headers['access-control-allow-origin'], undefined);
});

test('what is not there, can’t be made, or is not shown yet says so', async (t) => {
  const url = await serve(t);
  t.is((await ask(url, '/nothing')).status, 404);
  t.is((await ask(url, '/constructor')).status, 404);
  t.like(await ask(url, '/broken'), { status: 500, body: 'can not\n' });
  t.is((await ask(url, '/metrics', {}, 'POST')).status, 405);
  t.like(await ask(url, '/metrics', {}, 'HEAD'), { status: 200, body: '' });
  const starting = await WebServer.start(0, silent);
  t.teardown(() => starting.close());
  t.is((await ask(new URL(starting.url), '/metrics')).status, 503);
});

test('a name that an attacker’s DNS has pointed here is refused, a tunnel’s port is not', async (t) => {
  const url = await serve(t);
  for (const host of ['evil.example', `evil.example:${url.port}`, '127.0.0.1.evil.example', 'localhost.evil.example']) {
    t.is((await ask(url, '/metrics', { host })).status, 403, host);
  }
  for (const host of ['localhost', `LOCALHOST:${url.port}`, '127.0.0.1:9000', '[::1]:9000']) {
    t.is((await ask(url, '/metrics', { host })).status, 200, host);
  }
});

test('what a page of another origin asks for is refused', async (t) => {
  const url = await serve(t);
  const host = url.host;
  for (const headers of [
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: 'http://localhost:1' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'cross-site', 'sec-fetch-dest': 'iframe' },
  ]) {
    t.is((await ask(url, '/metrics', { host, ...headers })).status, 403, JSON.stringify(headers));
  }
  for (const headers of [
    { origin: `http://${host}` },
    { 'sec-fetch-site': 'none' },
    { 'sec-fetch-site': 'cross-site', 'sec-fetch-dest': 'document' },
  ]) {
    t.is((await ask(url, '/metrics', { host, ...headers })).status, 200, JSON.stringify(headers));
  }
});

test('only this machine is answered', async (t) => {
  const { port } = await serve(t);
  const others = Object.values(networkInterfaces()).flatMap((all = []) => all.filter(({ internal }) => !internal));
  // 127.0.0.2 is this machine too, and yet not the address that is listened on.
  for (const host of ['127.0.0.2', ...others.map(({ address }) => address)]) {
    const socket = connect({ host, port: Number(port) });
    const [error] = await once(socket, 'error');
    t.truthy(error, host);
  }
});

test('a port that is taken is an error that says so', async (t) => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  t.teardown(() => void other.close());
  const address = other.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const error = await t.throwsAsync(WebServer.start(port, silent), { instanceOf: TmaxError });
  t.is(error?.errno, 'EBUSY');
  t.regex(error?.message ?? '', new RegExp(`--metrics-port: port ${port} of 127\\.0\\.0\\.1 is taken`));
});
