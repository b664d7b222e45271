/** Opens a cache directory, as a daemon does. `argv`: the directory, and "shared" where its group is let in. */

import { BlobStore } from '../../src/blobs/blob-store.js';
import { wordsOf } from '../../src/errors.js';

const [, , root = '', kind] = process.argv;
try {
  await BlobStore.open(root, { isShared: kind === 'shared' });
} catch (error) {
  process.stderr.write(`${wordsOf(error)}\n`);
  process.exitCode = 1;
}
