/**
 * What may be done to a cache, to the real one and to its model, and that the two never disagree. To add a command: a class
 * with `check` (when it makes sense), `act` (on both) and `toString`, and its arbitrary in `cacheCommands`.
 */

import assert from 'node:assert/strict';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { TmaxError } from '../../src/errors.js';
import type { CacheModel, Expected } from './cache-model.js';
import { eventually } from './mount-client.js';
import { BLOCK_BYTES, type Clock, digestOf, type RealCache } from './real-cache.js';

/** Longer than last uses go unrecorded. */
const STEP_SECONDS = 100;

/** Errno of what was tried, or undefined. */
async function errnoOf(act: () => unknown): Promise<string | undefined> {
  try {
    await act();
  } catch (error) {
    if (error instanceof TmaxError) return error.errno;
    throw error;
  }
  return undefined;
}

abstract class Command implements fc.AsyncCommand<CacheModel, RealCache> {
  constructor(protected readonly clock: Clock) {}

  check(_model: Readonly<CacheModel>): boolean {
    return true;
  }

  async run(model: CacheModel, real: RealCache): Promise<void> {
    model.now += STEP_SECONDS;
    this.clock.set(model.now);
    real.fetches = [];
    await this.act(model, real);
    await this.agree(model, real);
  }

  protected abstract act(model: CacheModel, real: RealCache): Promise<void>;

  /** What `act` has led to, and what it had to lead to. */
  protected compare(expected: Expected, errno: string | undefined, model: CacheModel, real: RealCache): void {
    assert.equal(errno, expected.kind === 'full' ? 'ENOSPC' : undefined, String(this));
    assert.deepEqual(real.fetches, expected.kind === 'fetched' ? [expected.resumedBytes] : [], String(this));
    if (expected.kind !== 'full') return;
    // Who tried in vain may have made room for it.
    const left = new Set(real.lyingIn('blobs'));
    for (const image of model.disk.keys())
      if (!left.has(image)) assert.ok(model.evict(image), `${this}: ${image} is gone`);
    for (const image of model.partials.keys())
      if (!real.lyingIn('partial').includes(image)) model.partials.delete(image);
  }

  private async agree(model: CacheModel, real: RealCache): Promise<void> {
    const sorted = (images: Iterable<number>) => [...images].sort((a, b) => a - b);
    assert.deepEqual(real.lyingIn('blobs'), sorted(model.disk.keys()), `${this}: what is on disk`);
    assert.deepEqual(real.lyingIn('partial'), sorted(model.partials.keys()), `${this}: what is there in part`);
    const { use } = real.cache.statistics();
    assert.equal(use.usedBytes, model.usedBytes, `${this}: bytes`);
    assert.equal(use.leasedBlobs, model.leases.size, `${this}: leased`);
    assert.equal(use.idleBlobs, model.disk.size - model.leases.size, `${this}: idle`);
    assert.ok(model.usedBytes <= Math.max(model.limitBytes, model.heldBytes), `${this}: limit`);
    for (const image of real.pool.images.keys()) {
      assert.equal(
        real.cache.isReady(real.address(image)),
        model.disk.has(image),
        `${this}: whether ${image} is ready`,
      );
    }
    for (const { image, lease } of real.leases)
      assert.equal(digestOf(lease), real.address(image).sha256, `${this}: ${image}`);
  }
}

class Open extends Command {
  constructor(
    clock: Clock,
    readonly image: number,
  ) {
    super(clock);
  }

  protected override async act(model: CacheModel, real: RealCache): Promise<void> {
    const expected = model.open(this.image);
    const errno = await errnoOf(async () => {
      const label = { variant: 'v', task: String(this.image) };
      const lease = await real.cache.open(real.address(this.image), label, new AbortController().signal);
      real.leases.push({ image: this.image, lease });
    });
    this.compare(expected, errno, model, real);
  }

  override toString(): string {
    return `open ${this.image}`;
  }
}

class Close extends Command {
  constructor(
    clock: Clock,
    readonly choice: number,
  ) {
    super(clock);
  }

  override check(model: Readonly<CacheModel>): boolean {
    return model.leases.size > 0;
  }

  protected override async act(model: CacheModel, real: RealCache): Promise<void> {
    const [closed] = real.leases.splice(this.choice % real.leases.length, 1);
    if (closed === undefined) throw new Error('nothing is open');
    const { image, lease } = closed;
    lease.release();
    model.close(image);
    if (model.leases.has(image)) return;
    await real.settled();
    if (!model.disk.has(image)) return;
    const nowSeconds = Date.now() / 1000;
    await eventually('the last use is written down', () => {
      return Math.abs(statSync(real.blobPath(image)).atimeMs / 1000 - nowSeconds) < 1 || undefined;
    });
  }

  override toString(): string {
    return `close ${this.choice}`;
  }
}

class Bring extends Command {
  constructor(
    clock: Clock,
    readonly image: number,
    readonly keep: readonly number[],
  ) {
    super(clock);
  }

  protected override async act(model: CacheModel, real: RealCache): Promise<void> {
    const expected = model.bring(this.image, new Set(this.keep));
    const keep = new Set(this.keep.map((image) => real.address(image).sha256));
    const label = { variant: 'v', task: String(this.image) };
    const { signal } = new AbortController();
    const errno = await errnoOf(() => real.cache.bring(real.address(this.image), label, signal, keep));
    this.compare(expected, errno, model, real);
  }

  override toString(): string {
    return `bring ${this.image}, keeping ${this.keep.join(' ')}`;
  }
}

class Evict extends Command {
  constructor(
    clock: Clock,
    readonly image: number,
  ) {
    super(clock);
  }

  protected override async act(model: CacheModel, real: RealCache): Promise<void> {
    const expected = model.evict(this.image);
    assert.equal((await real.cache.evict(real.address(this.image).sha256)) === 'evicted', expected, String(this));
  }

  override toString(): string {
    return `evict ${this.image}`;
  }
}

class Pin extends Command {
  constructor(
    clock: Clock,
    readonly image: number,
    readonly isPinned: boolean,
  ) {
    super(clock);
  }

  protected override async act(model: CacheModel, real: RealCache): Promise<void> {
    const { sha256 } = real.address(this.image);
    if (this.isPinned) {
      model.pinned.add(this.image);
      await real.cache.pin([sha256]);
    } else {
      model.unpin(this.image);
      await real.cache.unpin([sha256]);
    }
  }

  override toString(): string {
    return `${this.isPinned ? 'pin' : 'unpin'} ${this.image}`;
  }
}

/** The process ends, or is killed in the middle of a fetch, and the next may have another limit. */
class Restart extends Command {
  constructor(
    clock: Clock,
    readonly limitBlocks: number,
    readonly left: { readonly image: number; readonly blocks: number } | undefined,
  ) {
    super(clock);
  }

  protected override async act(model: CacheModel, real: RealCache): Promise<void> {
    await real.end();
    const limitBytes = this.limitBlocks * BLOCK_BYTES;
    // The order in which several of them go is anybody's.
    const image = model.partials.size === 0 ? this.left?.image : undefined;
    if (image === undefined || model.disk.has(image)) model.restart(limitBytes);
    else {
      const { path, sha256, sizeBytes } = real.address(image);
      const bytes = Math.min(sizeBytes, (this.left?.blocks ?? 0) * BLOCK_BYTES);
      writeFileSync(join(real.root, 'partial', sha256), readFileSync(join(real.pool.folder, path)).subarray(0, bytes));
      model.restart(limitBytes, { image, bytes });
    }
    await real.start(limitBytes);
  }

  override toString(): string {
    const { left } = this;
    return `restart with ${this.limitBlocks} blocks${left === undefined ? '' : `, ${left.blocks} of ${left.image} left`}`;
  }
}

/** Sequences of all commands. Opens and closes are what there is most of. */
export function cacheCommands(clock: Clock, images: number, limits: fc.Arbitrary<number>) {
  const image = fc.nat({ max: images - 1 });
  const open = image.map((index) => new Open(clock, index));
  const close = fc.nat().map((choice) => new Close(clock, choice));
  const bring = fc
    .tuple(image, fc.uniqueArray(image, { maxLength: 2 }))
    .map(([index, keep]) => new Bring(clock, index, keep));
  const evict = image.map((index) => new Evict(clock, index));
  const pin = fc.tuple(image, fc.boolean()).map(([index, isPinned]) => new Pin(clock, index, isPinned));
  const left = fc.option(fc.record({ image, blocks: fc.integer({ min: 1, max: 3 }) }), { nil: undefined });
  const restart = fc.tuple(limits, left).map(([limit, part]) => new Restart(clock, limit, part));
  return fc.commands([open, open, open, close, close, bring, evict, pin, restart], { size: '+1' });
}
