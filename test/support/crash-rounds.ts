/**
 * The crash loop: a process with a busy cache is killed at a random moment, what it leaves is judged, the next goes on in the
 * same directory; the last must find everything in order.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { CacheReport, CacheTask } from './busy-cache.js';
import { type CacheJudgement, judgeCache, type PoolImage } from './judge-cache.js';
import { supportProgram } from './paths.js';
import { Random } from './random.js';
import { sha256Of, tinyImage } from './sif-writer.js';

const IMAGES = 12;
const MAX_PAYLOAD_BYTES = 200_000;
/** Room for about a third of the pool, and for the largest image twice. */
const LIMIT_BYTES = 500_000;
/** Counted from when it has opened its cache, now and then from when it is told to. */
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

/**
 * Runs in `folder`, which is to be empty, with so many processes at a time on the one cache. Errors: what is wrong, with the
 * round and the seed that led to it.
 */
export async function crashRounds(folder: string, rounds: number, seed: number, processes = 1): Promise<CrashSummary> {
  const random = new Random(seed);
  const root = join(folder, 'cache');
  const { images, task } = makePool(folder, root, processes === 1);
  const summary = { rounds, killedAtStart: 0, resumed: 0, temporaries: 0 };
  let before: CacheJudgement | undefined;
  const judge = (where: string, team: readonly CacheProcess[]): CacheJudgement => {
    const judgement = judgeCache(root, images, LIMIT_BYTES);
    const resumed = processes === 1 ? team.flatMap((process) => process.wrongResume(before)) : [];
    const faults = [...team.flatMap((process) => process.faults), ...judgement.faults, ...resumed];
    if (faults.length > 0) throw new Error(`${where}: ${faults.slice(0, MAX_FAULTS).join('\n')}`);
    return judgement;
  };
  const startTeam = () => Array.from({ length: processes }, () => CacheProcess.start());
  let next = startTeam();
  try {
    for (let round = 1; round <= rounds; round += 1) {
      const team = next;
      // Their start costs more than a round: they load while these are at work.
      next = startTeam();
      await Promise.all(
        team.map(async (process) => {
          const [load, lifeMs] = [random.below(2 ** 31), random.next() * MAX_LIFE_MS];
          const isAtStart = random.below(4) === 0;
          await process.begin({ ...task, kind: 'load', seed: load });
          if (!isAtStart) await process.opened;
          await delay(lifeMs);
          await process.kill();
        }),
      );
      before = judge(`round ${round} of seed ${seed}`, team);
      summary.killedAtStart += team.filter(({ isOpen }) => !isOpen).length;
      summary.resumed += team.filter(({ resumedBytes }) => resumedBytes > 0).length;
      summary.temporaries = before.temporaries.length;
    }
    // So old that nobody can be writing them any more.
    for (const path of [...(before?.temporaries ?? []), ...(before?.orphans ?? [])]) utimesSync(path, 0, 0);
    for (const process of next) {
      await process.begin({ ...task, kind: 'all', seed });
      await process.end();
    }
    const after = judge(`the end of seed ${seed}`, next);
    const left = [...after.temporaries, ...after.orphans];
    if (left.length > 0) throw new Error(`seed ${seed}: it was never tidied up: ${left.join(', ')}`);
  } finally {
    for (const process of next) await process.kill();
  }
  return summary;
}

function makePool(
  folder: string,
  root: string,
  isAlone: boolean,
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
    task: { root, pool, images: [first, ...rest], limitBytes: LIMIT_BYTES, isAlone },
  };
}

/** A busy cache's process, and what it has said. */
class CacheProcess {
  readonly faults: string[] = [];
  isOpen = false;
  /** Resolves once its cache is open, or it has ended. */
  readonly opened: Promise<unknown>;
  resumedBytes = 0;
  /** Of its first fetch, as is `resumedBytes`. */
  #resumedSha256: string | undefined;
  readonly #process: ChildProcess;
  readonly #loaded: Promise<unknown>;
  readonly #exit: Promise<unknown>;

  private constructor(child: ChildProcess) {
    this.#process = child;
    child.on('message', (message: CacheReport) => this.#hear(message));
    this.#exit = once(child, 'exit');
    this.opened = Promise.race([
      new Promise((resolve) => child.on('message', () => this.isOpen && resolve(true))),
      this.#exit,
    ]);
    this.#loaded = Promise.race([once(child, 'message'), this.#exit]);
  }

  static start(): CacheProcess {
    return new CacheProcess(fork(supportProgram('busy-cache'), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }));
  }

  async begin(task: CacheTask): Promise<void> {
    await this.#loaded;
    this.#process.send(task);
  }

  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exit;
  }

  /** What a process finds of the first partial file must be what the one before it has left. */
  wrongResume(before: CacheJudgement | undefined): string[] {
    const [resumedSha256, resumedBytes] = [this.#resumedSha256, this.resumedBytes];
    const leftBytes = resumedSha256 === undefined ? undefined : before?.partials.get(resumedSha256);
    if (leftBytes === undefined || leftBytes === resumedBytes) return [];
    return [`${resumedSha256} was gone on from ${resumedBytes} bytes, and ${leftBytes} had been left`];
  }

  /** Waits until it has ended by itself. */
  async end(): Promise<void> {
    const hung = delay(CHILD_LIMIT_MS, true, { ref: false });
    if ((await Promise.race([this.#exit, hung])) === true) this.faults.push('it does not end');
  }

  #hear(message: CacheReport): void {
    if (message.kind === 'wrong') this.faults.push(message.words);
    if (message.kind === 'open') this.isOpen = true;
    if (message.kind === 'resumed' && this.#resumedSha256 === undefined) {
      this.#resumedSha256 = message.sha256;
      this.resumedBytes = message.resumedBytes;
    }
  }
}
