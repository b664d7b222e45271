import { once } from 'node:events';
import { statSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { type Actions, startControlServer } from '../../src/daemon/control-server.js';
import { TmaxError } from '../../src/errors.js';
import { temporaryFolder } from '../support/temporary.js';

async function serve(t: ExecutionContext, actions: Actions) {
  const socketPath = join(temporaryFolder(t), 'socket');
  const documents = { '/status': () => ({ fine: true }) };
  const server = await startControlServer(socketPath, {
    documents,
    actions,
    mode: 0o600,
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
