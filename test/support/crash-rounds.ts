/**
 * The crash loop: a process with a busy cache is killed at a random moment, what it leaves is judged, the next goes on in the
 * same directory; the last must find everything in order.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { CacheReport, CacheTask } from './cache-process.js';
import { type CacheJudgement, judgeCache, type PoolImage } from './judge-cache.js';
import { supportProgram } from './paths.js';
import { Random } from './random.js';
import { sha256Of, tinyImage } from './sif-writer.js';

const IMAGES = 12;
const MAX_PAYLOAD_BYTES = 200_000;
/** Room for about a third of the pool, and for the largest image twice. */
const LIMIT_BYTES = 500_000;
/** Counted from when it is told to begin; its start takes about a third of that. */
const MAX_LIFE_MS = 150;
const CHILD_LIMIT_MS = 60_000;
/** Faults that are told of; the first says most. */
const MAX_FAULTS = 5;

export interface CrashSummary {
  readonly rounds: number;
  /** Killed while it still opened its cache. */
  readonly killedAtStart: number;
  /** Partial files that a kill had left, and that the next process went on from. */
  readonly resumed: number;
  /** Files that kills have left half written, all in all. */
  readonly temporaries: number;
}

/** Runs in `folder`, which is to be empty. Errors: what is wrong, with the round and the seed that led to it. */
export async function crashRounds(folder: string, rounds: number, seed: number): Promise<CrashSummary> {
  const random = new Random(seed);
  const root = join(folder, 'cache');
  const { images, task } = makePool(folder, root);
  const summary = { rounds, killedAtStart: 0, resumed: 0, temporaries: 0 };
  let before: CacheJudgement | undefined;
  let next = CacheProcess.start();
  try {
    for (let round = 1; round <= rounds; round += 1) {
      const current = next;
      // Its start costs more than a round: it loads while this one is at work.
      next = CacheProcess.start();
      const where = `round ${round} of seed ${seed}`;
      await current.begin({ ...task, kind: 'load', seed: random.below(2 ** 31) });
      await delay(random.next() * MAX_LIFE_MS);
      await current.kill();
      before = checked(where, current, root, images, before);
      if (!current.isOpen) summary.killedAtStart += 1;
      summary.temporaries = before.temporaries.length;
      summary.resumed += current.resumedBytes > 0 ? 1 : 0;
    }
    // So old that nobody can be writing them any more.
    for (const path of [...(before?.temporaries ?? []), ...(before?.orphans ?? [])]) utimesSync(path, 0, 0);
    await next.begin({ ...task, kind: 'all', seed });
    await next.end();
    const after = checked(`the end of seed ${seed}`, next, root, images, before);
    const left = [...after.temporaries, ...after.orphans];
    if (left.length > 0) throw new Error(`seed ${seed}: it was never tidied up: ${left.join(', ')}`);
  } finally {
    await next.kill();
  }
  return summary;
}

function checked(
  where: string,
  { faults: said, resumedSha256, resumedBytes }: CacheProcess,
  root: string,
  images: ReadonlyMap<string, PoolImage>,
  before: CacheJudgement | undefined,
): CacheJudgement {
  const judgement = judgeCache(root, images, LIMIT_BYTES);
  const faults = [...said, ...judgement.faults];
  // What a process finds of the first partial file is what the one before it has left.
  const leftBytes = resumedSha256 === undefined ? undefined : before?.partials.get(resumedSha256);
  if (leftBytes !== undefined && leftBytes !== resumedBytes) {
    faults.push(`${resumedSha256} was gone on from ${resumedBytes} bytes, and ${leftBytes} had been left`);
  }
  if (faults.length > 0) throw new Error(`${where}: ${faults.slice(0, MAX_FAULTS).join('\n')}`);
  return judgement;
}

function makePool(
  folder: string,
  root: string,
): { images: Map<string, PoolImage>; task: Omit<CacheTask, 'kind' | 'seed'> } {
  const pool = join(folder, 'pool');
  mkdirSync(pool);
  const made = Array.from({ length: IMAGES }, (_, index) => {
    const content = tinyImage(index, Math.round((MAX_PAYLOAD_BYTES * (index + 1)) / IMAGES));
    const path = `${index}.sif`;
    writeFileSync(join(pool, path), content);
    const address = {
      repository: 'o/p',
      commit: 'c'.repeat(40),
      path,
      sha256: sha256Of(content),
      sizeBytes: content.length,
    };
    return { address, content };
  });
  const [first, ...rest] = made.map(({ address }) => address);
  if (first === undefined) throw new Error('a pool has images');
  return {
    images: new Map(made.map(({ address: { sha256 }, content }) => [sha256, { sha256, content }])),
    task: { root, pool, images: [first, ...rest], limitBytes: LIMIT_BYTES },
  };
}

/** A cache-process, and what it has said. */
class CacheProcess {
  readonly faults: string[] = [];
  isOpen = false;
  /** Of its first fetch. */
  resumedSha256: string | undefined;
  resumedBytes = 0;
  readonly #process: ChildProcess;
  readonly #loaded: Promise<unknown>;
  readonly #exit: Promise<unknown>;

  private constructor(child: ChildProcess) {
    this.#process = child;
    this.#exit = once(child, 'exit');
    this.#loaded = Promise.race([once(child, 'message'), this.#exit]);
    child.on('message', (message: CacheReport) => this.#hear(message));
  }

  static start(): CacheProcess {
    return new CacheProcess(fork(supportProgram('cache-process'), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }));
  }

  async begin(task: CacheTask): Promise<void> {
    await this.#loaded;
    this.#process.send(task);
  }

  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exit;
  }

  /** Waits until it has ended by itself. */
  async end(): Promise<void> {
    const hung = delay(CHILD_LIMIT_MS, true, { ref: false });
    if ((await Promise.race([this.#exit, hung])) === true) this.faults.push('it does not end');
  }

  #hear(message: CacheReport): void {
    if (message.kind === 'wrong') this.faults.push(message.words);
    if (message.kind === 'open') this.isOpen = true;
    if (message.kind === 'resumed' && this.resumedSha256 === undefined) {
      this.resumedSha256 = message.sha256;
      this.resumedBytes = message.resumedBytes;
    }
  }
}
