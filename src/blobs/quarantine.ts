/**
 * Blobs that were refused, remembered with their reasons (never their data) so that no open waits for the same failure twice.
 *
 * Three kinds, by whose fault it was. `image`: the bytes are those that the repository publishes, and they are broken; only
 * another commit can mend that, or a user who knows better (`tmaxfs verify --retry`). `transfer`: what arrived was not what
 * the listing promised. `disk`: it was damaged on this disk while files of it are open, so it can't be replaced yet. In both
 * the next try may be luckier, so they are refused at once only for `RETRY_HOLD_MS`, enough to spare network and disk from
 * a harness that retries in a loop.
 *
 * A record's file decides: what another process removes is no longer refused.
 */

import { existsSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import * as v from 'valibot';
import { readSmallFile, removeStray, replaceSmallFile } from '../small-file.js';
import { isTemporary, removeLeftTemporaries } from '../temporary-file.js';
import { VERIFY_LEVELS, type VerifyLevel } from '../verify/verdict.js';
import { makeCacheFolder, removeForeign } from './cache-folder.js';
import type { CacheLayout } from './cache-layout.js';
import { SHA256_NAME } from './cache-layout.js';

/** How long a blob that arrived wrong, or is damaged and in use, is refused without another try. */
export const RETRY_HOLD_MS = 30_000;
/** More refused blobs than this are counted, not remembered: the pool is broken, not an image. */
const MAX_RECORDS = 20_000;

/** How far the proof of a refused blob came: size and digest are compared before the levels of verification. */
export const REFUSAL_LEVELS = ['size', 'sha256', ...VERIFY_LEVELS] as const;
export type RefusalLevel = (typeof REFUSAL_LEVELS)[number];

const recordShape = v.object({
  sha256: v.pipe(v.string(), v.regex(SHA256_NAME)),
  sizeBytes: v.number(),
  repository: v.string(),
  commit: v.string(),
  path: v.string(),
  cause: v.picklist(['image', 'transfer', 'disk']),
  /** Kind of the finding, as "sha256-mismatch". */
  code: v.string(),
  reason: v.string(),
  level: v.picklist(REFUSAL_LEVELS),
  verifierVersion: v.number(),
  source: v.string(),
  refusedAt: v.pipe(v.string(), v.isoTimestamp()),
});

export type QuarantineRecord = v.InferOutput<typeof recordShape>;

export class Quarantine {
  readonly #layout: CacheLayout;
  readonly #level: VerifyLevel;
  readonly #verifierVersion: number;
  readonly #records = new Map<string, QuarantineRecord>();
  /** Records that could not be written: nobody else can remove them. */
  readonly #unwritten = new Set<string>();

  /** Refusals at a greater depth than `level`, or by an older verifier, are remembered and do not count. */
  constructor(layout: CacheLayout, level: VerifyLevel, verifierVersion: number) {
    this.#layout = layout;
    this.#level = level;
    this.#verifierVersion = verifierVersion;
  }

  /** Reads what earlier runs left; records that can't be read as such are removed. Errors: those of the disk. */
  async load(): Promise<void> {
    await makeCacheFolder(this.#layout, this.#layout.quarantine);
    await removeLeftTemporaries(this.#layout.quarantine);
    for (const name of (await readdir(this.#layout.quarantine)).slice(0, MAX_RECORDS)) {
      // Another process may be about to give it its name.
      if (isTemporary(name)) continue;
      const sha256 = basename(name, '.json');
      const path = this.#layout.quarantineRecord(sha256);
      if (name !== `${sha256}.json` || !SHA256_NAME.test(sha256)) {
        await removeForeign(this.#layout, join(this.#layout.quarantine, name));
        continue;
      }
      const record = parseRecord(readSmallFile(path));
      if (record?.sha256 === sha256) this.#records.set(sha256, record);
      else await removeStray(path);
    }
  }

  records(): QuarantineRecord[] {
    return [...this.#records.keys()].flatMap((sha256) => this.get(sha256) ?? []);
  }

  /** As known here: records that another process has removed are counted until they are looked at. */
  counts(): Record<QuarantineRecord['cause'], number> {
    const counts = { image: 0, transfer: 0, disk: 0 };
    for (const { cause } of this.#records.values()) counts[cause] += 1;
    return counts;
  }

  /** The record of a blob, whether or not it still forbids a fetch. */
  get(sha256: string): QuarantineRecord | undefined {
    const record = this.#records.get(sha256);
    if (record === undefined || this.#unwritten.has(sha256)) return record;
    if (existsSync(this.#layout.quarantineRecord(sha256))) return record;
    this.#records.delete(sha256);
    return undefined;
  }

  /** The record that forbids a fetch of this blob at `commit` now, or undefined. */
  refusal(sha256: string, commit: string): QuarantineRecord | undefined {
    const record = this.get(sha256);
    if (record === undefined || !this.#stillCounts(record)) return undefined;
    if (record.cause === 'image' && record.level !== 'inspect') return record.commit === commit ? record : undefined;
    // apptainer's own refusal is held like a transfer's: it may have failed for a reason of this machine's.
    const ageMs = Date.now() - Date.parse(record.refusedAt);
    return ageMs >= 0 && ageMs < RETRY_HOLD_MS ? record : undefined;
  }

  /** What failed at a depth that is not asked for any more, or by a verifier that has been mended since, is judged anew. */
  #stillCounts({ cause, level, verifierVersion }: QuarantineRecord): boolean {
    if (cause !== 'image') return true;
    const depth = REFUSAL_LEVELS.indexOf(level);
    return depth <= REFUSAL_LEVELS.indexOf(this.#level) && verifierVersion >= this.#verifierVersion;
  }

  async add(record: QuarantineRecord): Promise<void> {
    const { sha256 } = record;
    if (this.#records.size >= MAX_RECORDS && !this.#records.has(sha256)) return;
    this.#records.set(sha256, record);
    this.#unwritten.add(sha256);
    const path = this.#layout.quarantineRecord(sha256);
    await makeCacheFolder(this.#layout, dirname(path));
    await replaceSmallFile(path, JSON.stringify(record), this.#layout.sharing?.readableMode);
    this.#unwritten.delete(sha256);
  }

  /** A blob that has been proven after all, or gets another chance. */
  async remove(sha256: string): Promise<void> {
    this.#unwritten.delete(sha256);
    if (this.#records.delete(sha256)) await rm(this.#layout.quarantineRecord(sha256), { force: true });
  }
}

function parseRecord(text: string | undefined): QuarantineRecord | undefined {
  if (text === undefined) return undefined;
  try {
    const parsed = v.safeParse(recordShape, JSON.parse(text));
    return parsed.success ? parsed.output : undefined;
  } catch {
    return undefined;
  }
}
