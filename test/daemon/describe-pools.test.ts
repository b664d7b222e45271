/** What a mount says of its pools on one screen. */

import test from 'ava';
import { describePools } from '../../src/daemon/describe-pools.js';
import { taskMapCatalog } from '../support/catalogs.js';

const COMMIT = 'c'.repeat(40);

test('of a pool with a folder for each image the first are named, and how many more there are', (t) => {
  const variants = Array.from({ length: 16_000 }, (_one, index) => [`v${index}`, { t: 'a.sif' }]);
  const catalog = taskMapCatalog({
    ...{ repository: 'o/p', commit: COMMIT, date: new Date(0), taskMap: JSON.stringify(Object.fromEntries(variants)) },
    listing: [{ path: 'a.sif', sizeBytes: 1, sha256: 'a'.repeat(64) }],
  });
  const report = { name: '', repository: 'o/p', revision: 'main', catalog: catalog.kind, commit: COMMIT };
  const follow = { intervalSeconds: null, checkedAt: null, changedAt: null, failure: null };
  const reports = [{ ...report, commitDate: '1970-01-01', blobs: 1, problems: 0, follow }];
  const [line = ''] = describePools({ shown: [{ name: '', catalog }], reports: () => reports }, { mountpoint: '/m' });
  t.regex(line, /^o\/p@c{12} is mounted on \/m: v0 1, v1 1, .*, v19 1, and 15980 more variants$/);
});
