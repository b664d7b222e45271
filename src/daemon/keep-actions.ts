/** What a daemon can be told to keep on its disk, and to take away from there. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import * as v from 'valibot';
import type { BlobCache } from '../blobs/blob-cache.js';
import type { Eviction } from '../blobs/blob-report.js';
import { diskError } from '../disk-error.js';
import { TmaxError } from '../errors.js';
import type { PoolFileSystem } from '../filesystem/pool-file-system.js';
import type { ActionContext, Actions } from './control-server.js';
import { type NamedBlob, namedBlobs } from './named-blobs.js';

const namesShape = v.object({ names: v.array(v.string()) });

/** Why a blob stays on disk, and what to do. */
const REMEDIES: Readonly<Record<Exclude<Eviction, 'evicted' | 'absent'>, string>> = {
  open: 'it is open through this mount; end what uses it',
  pinned: 'it is pinned; "tmaxfs unpin" it first',
  fetching: 'it is just being fetched or proven; try again when that is over',
  'in use elsewhere': 'another process holds it (a second mount on this cache, or "tmaxfs verify")',
};

/** How many blobs are dealt with before other things have their turn. */
const BLOBS_PER_TURN = 64;

/**
 * Each of `{names}`, as `namedBlobs` takes them. Lines `{kind: "failure", name, reason}`; results, all with `failures`:
 * `/pin` `{images, absent, pinned}`: of the images named, how many are not on disk; `pinned` is what is pinned in all.
 * `/unpin` `{images}`: how many were pinned. `/evict` `{images, absent}`: how many were removed, and were not there.
 */
export function keepActions(
  blobs: Pick<BlobCache, 'evict' | 'isPinned' | 'isThere' | 'pin' | 'pinned' | 'unpin'>,
  fileSystem: Pick<PoolFileSystem, 'tree'>,
): Actions {
  const named = (body: unknown, { say }: ActionContext) => {
    const parsed = v.safeParse(namesShape, body);
    if (!parsed.success) throw new TmaxError('EINVAL', 'it takes {names}', { source: 'control' });
    const { names } = parsed.output;
    const found = namedBlobs(fileSystem.tree, names, (sha256) => blobs.isThere(sha256) || blobs.isPinned(sha256));
    for (const name of found.unknown) {
      say({ kind: 'failure', name, reason: 'there is no such image or folder in the mount' });
    }
    return { images: found.blobs, failures: found.unknown.length };
  };
  return {
    '/pin': async (body, context) => {
      const { images, failures } = named(body, context);
      await onDisk('the pins could not be written', () => blobs.pin(images.map(({ sha256 }) => sha256)));
      const present = await filter(images, ({ sha256 }) => blobs.isThere(sha256));
      return { images: images.length, absent: images.length - present.length, pinned: await blobs.pinned(), failures };
    },
    '/unpin': async (body, context) => {
      const { images, failures } = named(body, context);
      const pinned = await filter(images, ({ sha256 }) => blobs.isPinned(sha256));
      await onDisk('the pins could not be removed', () => blobs.unpin(pinned.map(({ sha256 }) => sha256)));
      return { images: pinned.length, failures };
    },
    '/evict': async (body, context) => {
      const { images, failures } = named(body, context);
      const count = { images: 0, absent: 0, failures };
      for (const [index, { sha256, name }] of images.entries()) {
        if (index % BLOBS_PER_TURN === 0) await nextTurn();
        context.signal.throwIfAborted();
        const outcome = await onDisk(`${name} could not be removed`, () => blobs.evict(sha256));
        if (outcome === 'evicted') count.images += 1;
        else if (outcome === 'absent') count.absent += 1;
        else {
          count.failures += 1;
          context.say({ kind: 'failure', name, reason: REMEDIES[outcome] });
        }
      }
      return count;
    },
  };
}

async function filter(images: readonly NamedBlob[], test: (image: NamedBlob) => boolean): Promise<NamedBlob[]> {
  const passed: NamedBlob[] = [];
  for (const [index, image] of images.entries()) {
    if (index % BLOBS_PER_TURN === 0) await nextTurn();
    if (test(image)) passed.push(image);
  }
  return passed;
}

async function onDisk<Result>(failure: string, act: () => Promise<Result>): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    throw diskError(error, failure);
  }
}
