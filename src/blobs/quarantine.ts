/**
 * Blobs that were refused, remembered with their reasons so that no open waits for the same failure twice.
 *
 * Two kinds, by whose fault it was. `image`: the bytes are those that the repository publishes, and they are broken; only
 * another commit can mend that. `transfer`: what arrived was not what the listing promised; the next try may be luckier,
 * so it is refused at once only for `TRANSFER_HOLD_MS`, enough to spare the network from a harness that retries in a loop.
 */

import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import * as v from 'valibot';
import type { CacheLayout } from './cache-layout.js';
import { SHA256_NAME } from './cache-layout.js';

/** How long a blob that arrived wrong is refused without asking the network again. */
export const TRANSFER_HOLD_MS = 30_000;
/** More refused blobs than this are counted, not remembered: the pool is broken, not an image. */
const MAX_RECORDS = 20_000;

const recordShape = v.object({
  sha256: v.pipe(v.string(), v.regex(SHA256_NAME)),
  sizeBytes: v.number(),
  repository: v.string(),
  commit: v.string(),
  path: v.string(),
  cause: v.picklist(['image', 'transfer']),
  /** Kind of the finding, as "sha256-mismatch". */
  code: v.string(),
  reason: v.string(),
  level: v.string(),
  source: v.string(),
  refusedAt: v.pipe(v.string(), v.isoTimestamp()),
});

export type QuarantineRecord = v.InferOutput<typeof recordShape>;

export class Quarantine {
  readonly #layout: CacheLayout;
  readonly #records = new Map<string, QuarantineRecord>();

  constructor(layout: CacheLayout) {
    this.#layout = layout;
  }

  /** Reads what earlier runs left; records that can't be read as such are removed. */
  async load(): Promise<void> {
    await mkdir(this.#layout.quarantine, { recursive: true, mode: 0o755 });
    for (const name of (await readdir(this.#layout.quarantine)).slice(0, MAX_RECORDS)) {
      const sha256 = basename(name, '.json');
      const path = this.#layout.quarantineRecord(sha256);
      const record = SHA256_NAME.test(sha256) ? parseRecord(await readFile(path, 'utf8')) : undefined;
      if (record?.sha256 === sha256) this.#records.set(sha256, record);
      else await rm(`${this.#layout.quarantine}/${name}`, { force: true, recursive: true });
    }
  }

  get records(): Iterable<QuarantineRecord> {
    return this.#records.values();
  }

  get size(): number {
    return this.#records.size;
  }

  /** The record of a blob, whether or not it still forbids a fetch. */
  get(sha256: string): QuarantineRecord | undefined {
    return this.#records.get(sha256);
  }

  /** The record that forbids a fetch of this blob at `commit` now, or undefined. */
  refusal(sha256: string, commit: string): QuarantineRecord | undefined {
    const record = this.#records.get(sha256);
    if (record === undefined) return undefined;
    if (record.cause === 'image') return record.commit === commit ? record : undefined;
    return Date.now() - Date.parse(record.refusedAt) < TRANSFER_HOLD_MS ? record : undefined;
  }

  async add(record: QuarantineRecord): Promise<void> {
    if (this.#records.size >= MAX_RECORDS && !this.#records.has(record.sha256)) return;
    this.#records.set(record.sha256, record);
    const path = this.#layout.quarantineRecord(record.sha256);
    await writeFile(`${path}.tmp`, JSON.stringify(record), { mode: 0o644 });
    await rename(`${path}.tmp`, path);
  }

  /** A blob that has been proven after all. */
  async remove(sha256: string): Promise<void> {
    if (this.#records.delete(sha256)) await rm(this.#layout.quarantineRecord(sha256), { force: true });
  }
}

function parseRecord(text: string): QuarantineRecord | undefined {
  try {
    const parsed = v.safeParse(recordShape, JSON.parse(text));
    return parsed.success ? parsed.output : undefined;
  } catch {
    return undefined;
  }
}
