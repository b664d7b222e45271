/**
 * What may be done to two caches on one directory, and what must hold whoever does it: what anybody holds, pins or keeps stays,
 * what is on disk is never fetched again, nobody is told that there is no room where there is, and all bytes are right. What
 * each of them knows of the other is its own affair.
 */

import assert from 'node:assert/strict';
import fc from 'fast-check';
import { TmaxError } from '../../src/errors.js';
import { BLOCK_BYTES, digestOf, type RealCache } from './real-cache.js';

/** What every command may count on. */
export class SharedModel {
  readonly pinned = new Set<number>();
  readonly limits: number[];

  constructor(limits: readonly number[]) {
    this.limits = [...limits];
  }
}

export type Caches = readonly [RealCache, RealCache];

const LABEL = { variant: 'v', task: 't' };
const nobody = new AbortController().signal;

abstract class SharedCommand implements fc.AsyncCommand<SharedModel, Caches> {
  constructor(
    /** Which of the caches acts. */
    protected readonly actor: number,
    protected readonly image: number,
  ) {}

  check(): boolean {
    return true;
  }

  async run(model: SharedModel, caches: Caches): Promise<void> {
    const actor = caches[this.actor] ?? caches[0];
    actor.fetches = [];
    const before = actor.lyingIn('blobs');
    const held = new Set(caches.flatMap(({ leases }) => leases.map(({ image }) => image)));
    const heldElsewhere = new Set(
      caches.flatMap((cache) => (cache === actor ? [] : cache.leases.map(({ image }) => image))),
    );
    const stays = await this.act(model, actor, held, heldElsewhere);
    const after = new Set(actor.lyingIn('blobs'));
    for (const image of before) {
      if (stays.has(image) || model.pinned.has(image)) assert.ok(after.has(image), `${this}: ${image} is gone`);
    }
    for (const image of after) assert.ok(before.includes(image) || image === this.image, `${this}: ${image} has come`);
    for (const { leases, pool } of caches) {
      for (const { image, lease } of leases) assert.equal(digestOf(lease), pool.images[image]?.sha256, `${this}`);
    }
  }

  /** Answers with the images that must still be there. `held`: images that are open before it, anywhere; `elsewhere`: by the other. */
  protected abstract act(
    model: SharedModel,
    actor: RealCache,
    held: ReadonlySet<number>,
    elsewhere: ReadonlySet<number>,
  ): Promise<ReadonlySet<number>>;

  toString(): string {
    return `${'AB'[this.actor]}: ${this.constructor.name} ${this.image}`;
  }
}

/** Whether there was room. */
async function hadRoom(act: () => Promise<void>): Promise<boolean> {
  try {
    await act();
    return true;
  } catch (error) {
    if (error instanceof TmaxError && error.errno === 'ENOSPC') return false;
    throw error;
  }
}

class Open extends SharedCommand {
  protected override async act(
    model: SharedModel,
    actor: RealCache,
    held: ReadonlySet<number>,
  ): Promise<ReadonlySet<number>> {
    const before = actor.lyingIn('blobs');
    const isThere = before.includes(this.image);
    const isDone = await hadRoom(async () => {
      const lease = await actor.cache.open(actor.address(this.image), LABEL, nobody);
      actor.leases.push({ image: this.image, lease });
    });
    assert.equal(actor.fetches.length, isDone && !isThere ? 1 : 0, `${this}: fetches`);
    if (isThere) return new Set(before);
    if (!isDone) {
      const taken = new Set([...held, ...before.filter((image) => model.pinned.has(image)), this.image]);
      const bytes = [...taken].reduce((sum, image) => sum + actor.address(image).sizeBytes, 0);
      assert.ok(bytes > (model.limits[this.actor] ?? 0), `${this}: there is room`);
    }
    return isDone ? new Set([...held, this.image]) : held;
  }
}

class Close extends SharedCommand {
  protected override async act(
    _model: SharedModel,
    actor: RealCache,
    _held: ReadonlySet<number>,
    elsewhere: ReadonlySet<number>,
  ): Promise<ReadonlySet<number>> {
    const [closed] = actor.leases.splice(this.image % Math.max(1, actor.leases.length), 1);
    closed?.lease.release();
    await actor.settled();
    return new Set([...elsewhere, ...actor.leases.map(({ image }) => image)]);
  }
}

class Bring extends SharedCommand {
  protected override async act(_model: SharedModel, actor: RealCache, held: ReadonlySet<number>) {
    const before = actor.lyingIn('blobs');
    const kept = (this.image + 1) % actor.pool.images.length;
    const keep = new Set([actor.address(kept).sha256]);
    const isDone = await hadRoom(() => actor.cache.bring(actor.address(this.image), LABEL, nobody, keep));
    if (before.includes(this.image)) return new Set(before);
    return new Set([...held, kept, ...(isDone ? [this.image] : [])]);
  }
}

class Evict extends SharedCommand {
  protected override async act(model: SharedModel, actor: RealCache, held: ReadonlySet<number>) {
    const mayGo = actor.lyingIn('blobs').includes(this.image) && !held.has(this.image) && !model.pinned.has(this.image);
    assert.equal((await actor.cache.evict(actor.address(this.image).sha256)) === 'evicted', mayGo, `${this}`);
    return held;
  }
}

class Pin extends SharedCommand {
  protected override async act(model: SharedModel, actor: RealCache, held: ReadonlySet<number>) {
    const { sha256 } = actor.address(this.image);
    if (model.pinned.delete(this.image)) await actor.cache.unpin([sha256]);
    else {
      model.pinned.add(this.image);
      await actor.cache.pin([sha256]);
    }
    return held;
  }
}

/** One of them dies, and comes back, maybe with another limit. */
class Restart extends SharedCommand {
  protected override async act(
    model: SharedModel,
    actor: RealCache,
    _held: ReadonlySet<number>,
    elsewhere: ReadonlySet<number>,
  ): Promise<ReadonlySet<number>> {
    await actor.end();
    const limitBytes = (4 + this.image) * BLOCK_BYTES;
    model.limits[this.actor] = limitBytes;
    await actor.start(limitBytes);
    return elsewhere;
  }
}

export function sharedCommands(images: number) {
  const chance = fc.tuple(fc.nat({ max: 1 }), fc.nat({ max: images - 1 }));
  const kinds = [Open, Open, Open, Close, Close, Bring, Evict, Pin, Restart];
  return fc.commands(
    kinds.map((Kind) => chance.map(([actor, image]) => new Kind(actor, image))),
    { size: '+1' },
  );
}
