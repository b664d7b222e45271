/** A node that has its turn and is about to write a blob, until it is killed. `argv`: the shared directory, the blob's sha256. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { incomingName, SharedFolder } from '../../src/destinations/shared-folder.js';
import { LeaseFolder } from '../../src/locks/lease-folder.js';

const [, , root = '', sha256 = ''] = process.argv;
const folder = new SharedFolder(root);
const leases = new LeaseFolder(folder.leases, (path) => folder.make(path).close());
leases.tryTake(sha256, 'exclusive');
mkdirSync(folder.incoming, { recursive: true });
writeFileSync(join(folder.incoming, incomingName({ sha256, sizeBytes: 5_000_000 })), 'half of it');
process.stdout.write('ready\n');
setInterval(() => undefined, 1000);
