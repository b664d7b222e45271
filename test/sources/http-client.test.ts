import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import test, { type ExecutionContext } from 'ava';
import { TmaxError } from '../../src/errors.js';
import { HttpClient, type HttpRequest, type HttpSettings } from '../../src/sources/http-client.js';

const PATIENT = {
  connectTimeoutMs: 60_000,
  headersTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  minBytesPerSecond: 0,
  speedWindowMs: 10_000,
  userAgent: 'test',
};
const PIECE = Buffer.alloc(100_000, 1);

interface Bench {
  readonly client: HttpClient;
  get(changes?: Partial<HttpRequest>): ReturnType<HttpClient['get']>;
}

async function bench(
  t: ExecutionContext,
  answer: RequestListener,
  changes: Partial<HttpSettings> = {},
): Promise<Bench> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = new HttpClient({ ...PATIENT, ...changes });
  t.teardown(async () => {
    await client.close();
    server.closeAllConnections();
    server.close();
  });
  const bound = server.address();
  const url = new URL(`http://127.0.0.1:${typeof bound === 'object' && bound !== null ? bound.port : 0}/a?secret=1`);
  const { signal } = new AbortController();
  const get = (more: Partial<HttpRequest> = {}) =>
    client.get({ url, headers: {}, signal, onReply: () => undefined, ...more });
  return { client, get };
}

const failure = (t: ExecutionContext, promise: Promise<unknown>) => t.throwsAsync(promise, { instanceOf: TmaxError });

test('a stall is noticed after the receiver has held the flow back', async (t) => {
  const { get } = await bench(t, (_, response) => void response.writeHead(200).write(PIECE), { idleTimeoutMs: 500 });
  let held = false;
  const onReply = () => async () => {
    held = true;
    await Promise.resolve();
  };
  t.regex((await failure(t, get({ onReply }))).message, /stalled/);
  t.true(held);
});

test('a receiver may take longer than a server: what it holds back is no stall', async (t) => {
  const { get } = await bench(t, (_, response) => void response.writeHead(200).end(PIECE), { idleTimeoutMs: 500 });
  let taken = 0;
  const onReply = () => (chunk: Buffer) => {
    taken += chunk.length;
    return new Promise<void>((resolve) => setTimeout(resolve, 1000));
  };
  t.is((await get({ onReply })).status, 200);
  t.is(taken, PIECE.length);
});

test('the answer is complete only when its last piece was taken', async (t) => {
  const { get } = await bench(t, (_, response) => void response.end('x'));
  let release = (): void => {};
  let finished = false;
  const taken = new Promise<void>((resolve) => {
    release = resolve;
  });
  const given = new Promise<void>((resolve) => {
    const onReply = () => () => {
      resolve();
      return taken;
    };
    void get({ onReply }).then(() => {
      finished = true;
    });
  });
  await given;
  await new Promise((resolve) => setImmediate(resolve));
  t.false(finished);
  release();
  await taken;
  await new Promise((resolve) => setImmediate(resolve));
  t.true(finished);
});

test('what the receiver throws, at once or later, is the error', async (t) => {
  const { get } = await bench(t, (_, response) => void response.end(PIECE));
  const mine = (errno: 'ENOSPC' | 'EIO' | 'EBADMSG') => new TmaxError(errno, 'mine');
  const refuse = () => {
    throw mine('EBADMSG');
  };
  t.is((await failure(t, get({ onReply: refuse }))).errno, 'EBADMSG');
  t.is((await failure(t, get({ onReply: () => () => Promise.reject(mine('ENOSPC')) }))).errno, 'ENOSPC');
  const throwing = () => {
    throw mine('EIO');
  };
  t.is((await failure(t, get({ onReply: () => throwing }))).errno, 'EIO');
});

test('an answer nobody wants is not read to its end', async (t) => {
  const { get } = await bench(t, (_, response) => {
    response.writeHead(200);
    const more = (): boolean => response.write(PIECE, () => !response.destroyed && more());
    more();
  });
  t.is((await get()).status, 200);
});

test('closing ends what is under way and what comes after, as called off and not as a fault', async (t) => {
  const { client, get } = await bench(t, (_, response) => void response.writeHead(200).write('x'));
  let closed: Promise<void> | undefined;
  const onReply = () => () => {
    closed ??= client.close();
  };
  t.is((await failure(t, get({ onReply }))).errno, 'EINTR');
  await closed;
  t.is((await failure(t, get())).errno, 'EINTR');
});

test('no message shows the query of a URL', async (t) => {
  const { get } = await bench(t, (request) => void request.socket.destroy());
  const { message } = await failure(t, get());
  t.regex(message, /^127\.0\.0\.1:\d+ can't be reached/);
  t.false(message.includes('secret'));
});
