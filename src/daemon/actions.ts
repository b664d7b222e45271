/** What a daemon can be told to do on its control socket. */

import * as v from 'valibot';
import type { BlobCache } from '../blobs/blob-cache.js';
import { prefetch } from '../blobs/prefetch.js';
import { TmaxError } from '../errors.js';
import type { PoolFileSystem } from '../filesystem/pool-file-system.js';
import type { CatalogFollower } from './catalog-follower.js';
import type { Actions } from './control-server.js';
import { keepActions } from './keep-actions.js';
import type { Settings } from './settings.js';
import { selectionShape, wantedBlobs } from './wanted-blobs.js';

/**
 * `/reload`: looks for a newer commit; result `{repository, commit, isChanged}`.
 * `/prefetch` of a `Selection`: lines `{kind: "progress", ...PrefetchProgress}` and `{kind: "failure", name, reason}`; result
 * the last progress, and how many `failures` there were. `/pin`, `/unpin`, `/evict`: see keep-actions.ts.
 */
export function daemonActions(
  settings: Pick<Settings, 'maxFetches'>,
  follower: CatalogFollower,
  blobs: BlobCache,
  fileSystem: Pick<PoolFileSystem, 'tree'>,
): Actions {
  return {
    ...keepActions(blobs, fileSystem),
    '/reload': async () => {
      const before = follower.catalog;
      const { repository, commit } = await follower.reload();
      return { repository, commit, isChanged: commit !== before.commit };
    },
    '/prefetch': async (body, { signal, say }) => {
      const selection = v.safeParse(selectionShape, body);
      if (!selection.success) {
        throw new TmaxError('EINVAL', 'a prefetch takes {variant, tasks}', { source: 'control' });
      }
      const wanted = wantedBlobs(follower.catalog, selection.output);
      const progress = await prefetch(blobs, wanted.blobs, {
        concurrency: settings.maxFetches,
        signal,
        onProgress: (one) => say({ kind: 'progress', ...one }),
        onFailure: ({ variant, task, path, errno, message }) =>
          say({ kind: 'failure', name: `${variant}/${task} (${path})`, reason: `${errno}: ${message}` }),
      });
      for (const { name, reason } of wanted.unknown) say({ kind: 'failure', name, reason });
      return { ...progress, failures: progress.failedBlobs + wanted.unknown.length };
    },
  };
}
