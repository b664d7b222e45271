/** What a daemon can be told to do on its control socket. */

import * as v from 'valibot';
import type { BlobCache } from '../blobs/blob-cache.js';
import { prefetch } from '../blobs/prefetch.js';
import { messageOf, TmaxError } from '../errors.js';
import type { PoolFileSystem } from '../filesystem/pool-file-system.js';
import type { Actions } from './control-server.js';
import { keepActions } from './keep-actions.js';
import type { Pools } from './pools.js';
import type { Settings } from './settings.js';
import { selectionShape, wantedBlobs } from './wanted-blobs.js';

/**
 * `/reload`: looks for newer commits; lines `{kind: "failure", name, reason}` of the pools that could not be renewed, where others
 * could; result `{pools: [{name, repository, commit, isChanged}], failures}`.
 * `/prefetch` of a `Selection`: lines `{kind: "progress", ...PrefetchProgress}` and `{kind: "failure", name, reason}`; result
 * the last progress, and how many `failures` there were. `/pin`, `/unpin`, `/evict`: see keep-actions.ts.
 */
export function daemonActions(
  settings: Pick<Settings, 'maxFetches'>,
  pools: Pools,
  blobs: BlobCache,
  fileSystem: Pick<PoolFileSystem, 'tree'>,
): Actions {
  return {
    ...keepActions(blobs, fileSystem),
    '/reload': async (_body, { say }) => {
      const reloads = await pools.reload();
      const failed = reloads.filter(({ failure }) => failure !== undefined);
      for (const { name, failure } of failed) {
        say({ kind: 'failure', name, reason: `${failure?.errno}: ${messageOf(failure)}` });
      }
      const shown = reloads.map(({ name, repository, commit, isChanged }) => ({ name, repository, commit, isChanged }));
      return { pools: shown, failures: failed.length };
    },
    '/prefetch': async (body, { signal, say }) => {
      const selection = v.safeParse(selectionShape, body);
      if (!selection.success) {
        throw new TmaxError('EINVAL', 'a prefetch takes {variant, tasks}', { source: 'control' });
      }
      const wanted = wantedBlobs(pools.catalog, selection.output);
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
