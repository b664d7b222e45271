/** A node of another user: takes its turn and writes a blob. `argv`: the shared directory, the file, the blob's address as JSON. */

import { DirectoryDestination } from '../../src/destinations/directory-destination.js';
import type { BlobAddress } from '../../src/sources/source.js';

const [, , folder = '', path = '', address = ''] = process.argv;
const blob = JSON.parse(address) as BlobAddress;
const limits = { reserve: { bytes: 0 }, limitBytes: undefined };
const destination = new DirectoryDestination(folder, { limits, idleTimeoutMs: 20_000 });
const { signal } = new AbortController();
const claim = await destination.claim(blob, signal);
const outcome = await destination.put(blob, path, { signal, mends: false });
await destination.close();
process.stdout.write(`${claim.kind} ${outcome}\n`);
