/** What it costs opens that a silent source is tried again: one of them one request, and the others nothing. */

import { EventEmitter, once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { FAILURES_TO_LEAVE_ALONE, FIRST_LEAVE_MS } from '../../src/sources/limits.js';
import { RateGovernor } from '../../src/sources/rate-governor.js';
import { RemoteSource } from '../../src/sources/remote-source.js';
import type { Source } from '../../src/sources/source.js';
import { SourceHealth } from '../../src/sources/source-health.js';
import { blobOf, holds, setUp, TestSource } from '../support/blob-cache.js';
import { hubSettings } from '../support/hub.js';

/** Takes connections and requests, and answers none of them. */
class SilentServer extends EventEmitter {
  /** Path of each. */
  readonly requests: string[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;

  private constructor() {
    super();
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('data', (data) => {
        this.requests.push(/^GET (\S+)/.exec(data.toString())?.[1] ?? '?');
        this.emit('request');
      });
    });
  }

  static async start(t: ExecutionContext): Promise<SilentServer> {
    const silent = new SilentServer();
    silent.#server.listen(0, '127.0.0.1');
    await once(silent.#server, 'listening');
    t.teardown(() => {
      silent.hangUp();
      silent.#server.close();
    });
    return silent;
  }

  get origin(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  }

  hangUp(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** A cache whose first source is silent, has been left alone for that, and is to be tried now. */
async function withSilentSource(t: ExecutionContext, headersTimeoutMs: number) {
  const silent = await SilentServer.start(t);
  const name = `${silent.origin}/{sha256}`;
  const locator = { kind: 'template', name, template: name } as const;
  const settings = { ...hubSettings(silent.origin), headersTimeoutMs, threads: 1 };
  const remote = new RemoteSource({ name, locator, secret: async () => undefined }, settings, new RateGovernor());
  const clock = { ms: 0 };
  const health = new SourceHealth(() => clock.ms);
  const source: Source = {
    name,
    health,
    perseveres: true,
    download: (blob, path, options) => remote.download(blob, path, options),
    close: () => remote.close(),
  };
  t.teardown(() => source.close());
  for (let failures = 0; failures < FAILURES_TO_LEAVE_ALONE; failures += 1) health.failed('no answer', 'brief');
  clock.ms += FIRST_LEAVE_MS;
  const last = new TestSource('last');
  const blobs = ['a', 'b', 'c'].map((seed) => blobOf(seed));
  for (const { address, content } of blobs) last.contents.set(address.sha256, content);
  const { open } = await setUp(t, { sources: [source, last] });
  const pathOf = (blob: (typeof blobs)[number] | undefined) => `/${blob?.address.sha256}`;
  return { silent, health, blobs, open, pathOf };
}

test('an open that tries a silent source again sends it one request, and then goes to the next', async (t) => {
  const { silent, health, blobs, open, pathOf } = await withSilentSource(t, 300);
  const [blob = blobOf('?')] = blobs;
  t.true(holds(await open(blob), blob));
  t.deepEqual(silent.requests, [pathOf(blob)]);
  t.like(health.report(), { failuresInARow: FAILURES_TO_LEAVE_ALONE + 1, leftAloneMs: 2 * FIRST_LEAVE_MS });
});

test('while one open tries a silent source, others go to the next at once', async (t) => {
  const { silent, health, blobs, open, pathOf } = await withSilentSource(t, 100_000);
  const [tried = blobOf('?'), ...others] = blobs;
  const asked = once(silent, 'request');
  const trying = open(tried);
  await asked;
  for (const blob of others) t.true(holds(await open(blob), blob));
  t.deepEqual(silent.requests, [pathOf(tried)]);
  silent.hangUp();
  t.true(holds(await trying, tried));
  t.deepEqual(silent.requests, [pathOf(tried)], 'it is not asked a second time');
  t.is(health.report().leftAloneMs, 2 * FIRST_LEAVE_MS);
});
