/** What lies in a cache directory, whether or not a daemon runs on it: the documents behind `tmaxfs cache ls` and `cache du`, stable. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { BlobStore, StoredBlob } from '../blobs/blob-store.js';
import { filesBelow } from '../blobs/files-below.js';
import { catalogsIn } from './catalog-folder.js';
import type { Status } from './status.js';
import { taskNames } from './task-names.js';

export interface ListedBlob {
  readonly sha256: string;
  readonly sizeBytes: number;
  /** ISO 8601. */
  readonly usedAt: string;
  /** How deep it was proven; null: not, or not this file, and so it is proven again before it is served. */
  readonly level: string | null;
  /** It is never evicted. */
  readonly pinned: boolean;
  /** Some process holds it open. */
  readonly open: boolean;
  /** Its tasks, as "variant/task", in the catalog used last of those that know it. */
  readonly names: readonly string[];
  /** Path in the repository; null where no catalog on this disk knows it. */
  readonly path: string | null;
}

export interface CacheListing {
  readonly directory: string;
  /** Used longest ago first: the order in which they are evicted. */
  readonly blobs: readonly ListedBlob[];
}

export interface Taken {
  readonly files: number;
  readonly bytes: number;
}

export interface CacheUse {
  readonly directory: string;
  readonly blobs: Taken & { readonly pinned: Taken; readonly open: Taken };
  /** Fetches that run, or have ended before their time; what they take on disk. */
  readonly partials: Taken;
  /** Damaged images that were open when they were replaced. */
  readonly retired: Taken;
  readonly proofs: Taken;
  readonly quarantine: Taken;
  readonly catalogs: Taken;
  /** All of it. */
  readonly bytes: number;
  readonly diskAvailableBytes: number;
  /** Those that serve from it and answer. */
  readonly daemons: readonly {
    readonly mountpoint: string;
    readonly pid: number;
    readonly limitBytes: number;
    readonly reservedBytes: number;
  }[];
}

/** Blobs are looked at synchronously: so many, and other things have their turn. */
const BLOBS_PER_TURN = 64;

/** Errors: those of the disk. */
export async function listCache(store: BlobStore): Promise<CacheListing> {
  const stored = await store.list();
  const nameOf = await namesOf(store, new Set(stored.map(({ sha256 }) => sha256)));
  const states = await statesOf(store, stored);
  const blobs = stored.map(({ sha256, sizeBytes, usedAtMs }, index) => {
    const { level = null, pinned = false, open = false } = states[index] ?? {};
    const usedAt = new Date(usedAtMs).toISOString();
    return { sha256, sizeBytes, usedAt, level, pinned, open, ...nameOf(sha256) };
  });
  return { directory: store.layout.root, blobs };
}

/** Errors: those of the disk. */
export async function measureCache(store: BlobStore, daemons: readonly Status[]): Promise<CacheUse> {
  const { layout } = store;
  const stored = await store.list();
  const states = await statesOf(store, stored);
  const blobs = {
    ...taken(stored),
    pinned: taken(stored.filter((_blob, index) => states[index]?.pinned)),
    open: taken(stored.filter((_blob, index) => states[index]?.open)),
  };
  const [partials, retired, proofs, quarantine, catalogs, disk] = await Promise.all([
    measure(layout.partials),
    measure(layout.retired),
    measure(layout.proofs),
    measure(layout.quarantine),
    measure(layout.catalogs),
    store.disk(),
  ]);
  const bytes = [blobs, partials, retired, proofs, quarantine, catalogs].reduce((sum, part) => sum + part.bytes, 0);
  return {
    directory: layout.root,
    blobs,
    partials,
    retired,
    proofs,
    quarantine,
    catalogs,
    bytes,
    diskAvailableBytes: disk.availableBytes,
    daemons: daemons.map(({ mountpoint, pid, cache: { limitBytes, reservedBytes } }) => {
      return { mountpoint, pid, limitBytes, reservedBytes };
    }),
  };
}

async function statesOf(store: BlobStore, stored: readonly StoredBlob[]) {
  const pins = await store.pins.list();
  const states: Pick<ListedBlob, 'level' | 'pinned' | 'open'>[] = [];
  for (const [index, { sha256, sizeBytes, modifiedSeconds }] of stored.entries()) {
    if (index % BLOBS_PER_TURN === 0) await nextTurn();
    const proof = store.proofs.read(sha256);
    const isOfThisFile = proof?.sizeBytes === sizeBytes && proof.modifiedSeconds === modifiedSeconds;
    states.push({
      level: isOfThisFile ? proof.level : null,
      pinned: pins.has(sha256),
      open: store.isHeld(sha256),
    });
  }
  return states;
}

async function namesOf(
  store: BlobStore,
  wanted: ReadonlySet<string>,
): Promise<(sha256: string) => Pick<ListedBlob, 'names' | 'path'>> {
  const known = new Map<string, { names: readonly string[]; path: string; usedAtMs: number }>();
  for await (const { catalog, usedAtMs } of catalogsIn(store).all()) {
    if (catalog === undefined) continue;
    const names = taskNames(catalog, wanted);
    for (const sha256 of wanted) {
      const address = catalog.blobs.get(sha256);
      const isNewer = usedAtMs > (known.get(sha256)?.usedAtMs ?? 0);
      if (address !== undefined && isNewer) known.set(sha256, { names: names(sha256), path: address.path, usedAtMs });
    }
  }
  return (sha256) => {
    const { names = [], path = null } = known.get(sha256) ?? {};
    return { names, path };
  };
}

async function measure(folder: string): Promise<Taken> {
  let [files, bytes] = [0, 0];
  for await (const file of filesBelow(folder, 1)) [files, bytes] = [files + 1, bytes + file.bytes];
  return { files, bytes };
}

function taken(blobs: readonly StoredBlob[]): Taken {
  return { files: blobs.length, bytes: blobs.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) };
}
