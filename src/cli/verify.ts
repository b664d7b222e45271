/**
 * `tmaxfs verify`: proves again what is on disk, beside any daemon that uses it. It asks no network, evicts nothing and
 * leaves the order of use as it is. The proof of an image that fails is withdrawn: a running daemon proves it again, and
 * so fetches it anew, at its next open.
 */

import { closeSync, openSync, writeSync } from 'node:fs';
import { SingleBar } from 'cli-progress';
import PQueue from 'p-queue';
import { pino } from 'pino';
import type { BlobStore } from '../blobs/blob-store.js';
import { Quarantine } from '../blobs/quarantine.js';
import { checkStored } from '../blobs/stored-blob-check.js';
import type { Catalog } from '../catalog/catalog.js';
import { loadCatalog } from '../catalog/load-catalog.js';
import { mergeCatalogs } from '../catalog/merge-catalogs.js';
import { counted } from '../counted.js';
import { formatBytes } from '../daemon/amount.js';
import { catalogsIn } from '../daemon/catalog-folder.js';
import { describePool, type PoolChoice, type PoolWords, readPools } from '../daemon/pool-choices.js';
import { parseThreads } from '../daemon/settings.js';
import { type PlannedBlob, planVerification, type VerificationPlan } from '../daemon/verification-plan.js';
import { messageOf, TmaxError } from '../errors.js';
import type { ShownPool } from '../filesystem/tree.js';
import type { VerifyLevel } from '../verify/verdict.js';
import { VERIFIER_VERSION, Verifier } from '../verify/verifier.js';
import { type CacheWords, openChosenCache } from './choose-cache.js';

export interface VerifyCommandOptions extends PoolWords, CacheWords {
  readonly variant?: string;
  readonly task?: string;
  readonly level: VerifyLevel;
  readonly jsonl?: string;
  readonly jobs: string;
  readonly retry: boolean;
}

/** `rc` of a line: what preflight scripts look at. */
const RC_SOUND = 0;
const RC_FAILED = 1;
const RC_NOT_JUDGED = 2;

interface Outcome {
  readonly rc: number;
  readonly err: string;
  readonly level: VerifyLevel;
}

/** Sets exit code 1 if anything failed. Errors: ENOENT no cache there; EHOSTUNREACH no catalog on disk; EINVAL usage. */
export async function verifyCommand(options: VerifyCommandOptions): Promise<void> {
  const threads = parseThreads(options.jobs, '--jobs');
  const store = await openChosenCache(options);
  const catalog = await catalogOnDisk(store, readPools(options), options);
  const plan = planVerification(catalog, await store.list(), options);
  if (options.retry) await forgetRefusals(store, plan);
  const report = new Report(plan, options.jsonl);
  const verifier = new Verifier({ threads });
  try {
    const queue = new PQueue({ concurrency: threads });
    await queue.addAll(
      plan.blobs.map((blob) => async () => report.add(blob, await prove(store, verifier, options.level, blob))),
    );
  } finally {
    await verifier.close();
    report.close();
  }
  if (report.failed > 0) process.exitCode = 1;
}

/** Undefined where everything is meant and nothing says what it is called: blobs can be proven without names. */
async function catalogOnDisk(
  store: BlobStore,
  pools: readonly PoolChoice[],
  { variant, task }: VerifyCommandOptions,
): Promise<Catalog | undefined> {
  const place = {
    origin: undefined,
    store: catalogsIn(store),
    log: pino({ level: 'silent' }),
    signal: new AbortController().signal,
  };
  const found: ShownPool[] = [];
  for (const pool of pools) {
    const { name, repository, revision, catalog: choice, naming } = pool;
    try {
      found.push({ name, catalog: await loadCatalog({ ...place, repository, revision, choice, naming }) });
    } catch (error) {
      const isUnknown = error instanceof TmaxError && error.errno === 'EHOSTUNREACH';
      if (!isUnknown || variant !== undefined || task !== undefined) throw error;
      say(`no catalog of ${describePool(pool)} is on this disk: images are named by their sha256 alone`);
    }
  }
  return found.length === 0 ? undefined : mergeCatalogs(found);
}

async function forgetRefusals(store: BlobStore, { chosen }: VerificationPlan): Promise<void> {
  const quarantine = new Quarantine(store.layout, 'inspect', VERIFIER_VERSION);
  await quarantine.load();
  const forgotten = quarantine
    .records()
    .filter(({ cause, sha256 }) => cause === 'image' && (chosen === undefined || chosen.has(sha256)));
  for (const { sha256, path } of forgotten) {
    await quarantine.remove(sha256);
    say(`${path} is no longer refused: its next open fetches it anew`);
  }
  if (forgotten.length === 0) say('nothing that is chosen was refused as published');
}

/** Undefined where the blob is not there any more. */
async function prove(
  store: BlobStore,
  prover: Verifier,
  level: VerifyLevel,
  blob: PlannedBlob,
): Promise<Outcome | undefined> {
  try {
    const environment = { store, prover, verifierVersion: VERIFIER_VERSION, level };
    const check = await checkStored(environment, blob, new AbortController().signal);
    if (check.kind === 'absent') return undefined;
    if (check.kind === 'sound') return { rc: RC_SOUND, err: '', level };
    return { rc: RC_FAILED, err: check.finding.message, level: check.level };
  } catch (error) {
    return { rc: RC_NOT_JUDGED, err: messageOf(error), level };
  }
}

/** Lines for scripts, a bar and words for people. */
class Report {
  failed = 0;
  readonly #lines: LineFile | undefined;
  readonly #bar: SingleBar | undefined;
  readonly #failures: string[] = [];
  #absentTasks: number;
  #checkedBlobs = 0;
  #checkedBytes = 0;

  constructor(plan: VerificationPlan, file: string | undefined) {
    this.#absentTasks = plan.absentTasks;
    this.#lines = file === undefined ? undefined : openLines(file);
    // Lines on the same terminal would run into a bar.
    if (!process.stderr.isTTY || (file === '-' && process.stdout.isTTY)) return;
    const format = '{bar} {percentage}%  {blobs}/{allBlobs} images  {duration_formatted}, {eta_formatted} left';
    this.#bar = new SingleBar({ format, stream: process.stderr, clearOnComplete: true, hideCursor: false });
    const totalBytes = plan.blobs.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    this.#bar.start(totalBytes, 0, { blobs: 0, allBlobs: plan.blobs.length });
  }

  add({ sha256, sizeBytes, subjects }: PlannedBlob, outcome: Outcome | undefined): void {
    if (outcome === undefined) {
      this.#absentTasks += subjects.filter(({ task }) => task !== null).length;
      return;
    }
    this.#checkedBlobs += 1;
    this.#checkedBytes += sizeBytes;
    this.#bar?.update(this.#checkedBytes, { blobs: this.#checkedBlobs });
    const { rc, err, level } = outcome;
    for (const { variant, task, image } of subjects) {
      this.#lines?.write(JSON.stringify({ variant, task, image, blob: sha256, rc, err, level }));
      if (rc !== RC_SOUND) {
        const name = task === null ? (image ?? sha256) : `${variant}/${task} (${image})`;
        this.#failures.push(`failed: ${name}: ${err}`);
      }
    }
    if (rc !== RC_SOUND) this.failed += 1;
  }

  close(): void {
    this.#bar?.stop();
    for (const failure of this.#failures) say(failure);
    const size = formatBytes(this.#checkedBytes);
    say(`${counted(this.#checkedBlobs, 'image')} on this disk proven again (${size}), ${this.failed} of them failed`);
    if (this.#absentTasks > 0) say(`${counted(this.#absentTasks, 'task')} left out: not on this disk`);
    this.#lines?.close();
  }
}

interface LineFile {
  write(line: string): void;
  close(): void;
}

/** Opened before anything is proven: a report that can't be written is found out at once. Errors: EACCES. */
function openLines(file: string): LineFile {
  if (file === '-') return { write: (line) => void process.stdout.write(`${line}\n`), close: () => undefined };
  let descriptor: number;
  try {
    descriptor = openSync(file, 'w');
  } catch (cause) {
    throw new TmaxError('EACCES', `the report ${file} can't be written: ${messageOf(cause)}`, { cause, source: 'cli' });
  }
  return { write: (line) => void writeSync(descriptor, `${line}\n`), close: () => closeSync(descriptor) };
}

function say(words: string): void {
  process.stderr.write(`${words}\n`);
}
