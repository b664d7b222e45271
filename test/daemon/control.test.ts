import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { type Actions, startControlServer, TextDocument } from '../../src/daemon/control-server.js';
import { TmaxError } from '../../src/errors.js';
import { getText } from '../support/scrape.js';
import { temporaryFolder } from '../support/temporary.js';

async function serve(t: ExecutionContext, actions: Actions) {
  const folder = temporaryFolder(t);
  const socketPath = join(folder, 'socket');
  const documents = { '/status': () => ({ fine: true }) };
  const server = await startControlServer(socketPath, {
    documents,
    actions,
    mode: 0o600,
    madeIn: folder,
    log: pino({ level: 'silent' }),
  });
  t.teardown(() => server.close());
  return socketPath;
}

/** The answer's status and lines, parsed. */
async function post(socketPath: string, path: string, body: string): Promise<{ status: number; lines: unknown[] }> {
  const sent = request({ socketPath, path, method: 'POST' }).end(body);
  const [response] = await once(sent, 'response');
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  return {
    status: response.statusCode,
    lines: text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  };
}

test('an action’s words come as lines, its result as the last; what was posted reaches it', async (t) => {
  const socketPath = await serve(t, {
    '/count': async (body, { say }) => {
      say({ got: body });
      say({ step: 2 });
      return { done: true };
    },
  });
  t.deepEqual(await post(socketPath, '/count', '{"to":2}'), {
    status: 200,
    lines: [{ got: { to: 2 } }, { step: 2 }, { result: { done: true } }],
  });
  t.is(statSync(socketPath).mode & 0o777, 0o600);
});

test('a socket for a group is never anybody else’s, and leaves nothing where it was made', async (t) => {
  const [madeIn, folder] = [temporaryFolder(t), temporaryFolder(t)];
  const path = join(folder, 'socket');
  const options = { documents: { '/x': () => 1 }, actions: {}, log: pino({ level: 'silent' }) };
  const server = await startControlServer(path, { ...options, mode: 0o660, madeIn, group: 4242 });
  const { mode, gid } = statSync(path);
  t.deepEqual([mode & 0o777, gid], [0o660, 4242]);
  t.deepEqual(readdirSync(madeIn), []);
  t.is(await getText({ socketPath: path, path: '/x' }), '1\n');
  await server.close();
  t.deepEqual(readdirSync(folder), []);
});

test('a document that is text comes as it is', async (t) => {
  const folder = temporaryFolder(t);
  const documents = { '/metrics': () => new TextDocument('text/plain; version=0.0.4', 'some 1\n') };
  const options = { documents, actions: {}, mode: 0o600, madeIn: folder, log: pino({ level: 'silent' }) };
  const server = await startControlServer(join(folder, 'socket'), options);
  t.teardown(() => server.close());
  t.is(await getText({ socketPath: join(folder, 'socket'), path: '/metrics' }), 'some 1\n');
});

test('a failure is the last line, with its errno', async (t) => {
  const socketPath = await serve(t, {
    '/fail': async () => {
      throw new TmaxError('ENOSPC', 'too large');
    },
  });
  const { lines } = await post(socketPath, '/fail', '{}');
  t.deepEqual(lines, [{ error: 'too large', errno: 'ENOSPC' }]);
  const bad = await post(socketPath, '/fail', 'not JSON');
  t.is(bad.status, 400);
  t.like(bad.lines[0], { errno: 'EINVAL' });
  t.is((await post(socketPath, '/status', '{}')).status, 404, 'a document is not an action');
});

test('an action ends when its client goes away', async (t) => {
  let ended = () => {};
  const end = new Promise<void>((resolve) => {
    ended = resolve;
  });
  const socketPath = await serve(t, {
    '/wait': async (_, { signal, say }) => {
      say({ started: true });
      await once(signal, 'abort');
      ended();
      return {};
    },
  });
  const sent = request({ socketPath, path: '/wait', method: 'POST' }).end('{}');
  const [response] = await once(sent, 'response');
  await once(response, 'data');
  sent.on('error', () => undefined);
  response.on('error', () => undefined);
  sent.destroy();
  await end;
  t.pass();
});
