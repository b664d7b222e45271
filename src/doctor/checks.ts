/** All that is looked at, in the order in which it is told: the machine from below, then the network, then what runs. */

import { apptainer } from './checks/apptainer.js';
import { cacheDisk, temporaryFolder } from './checks/cache-disk.js';
import { allowOther, fuseDevice, fusermount, updatedb } from './checks/fuse.js';
import { hub } from './checks/hub.js';
import { passthrough, userNamespaces } from './checks/kernel.js';
import { mounts } from './checks/mounts.js';
import { node, openFiles, runtimeFolder } from './checks/process.js';
import { offline, proxies, variables } from './checks/proxy.js';
import { slurm } from './checks/slurm.js';
import { sources } from './checks/sources.js';
import { token } from './checks/token.js';
import type { Check } from './examine.js';

/** Their names are a contract of `tmaxfs doctor --json`. */
export const CHECKS: readonly Check[] = [
  { name: 'fuse-device', look: fuseDevice },
  { name: 'fusermount', look: fusermount },
  { name: 'allow-other', look: allowOther },
  { name: 'passthrough', look: passthrough },
  { name: 'user-namespaces', look: userNamespaces },
  { name: 'apptainer', look: apptainer },
  { name: 'node', look: node },
  { name: 'open-files', look: openFiles },
  { name: 'runtime-folder', look: runtimeFolder },
  { name: 'cache-disk', look: cacheDisk },
  { name: 'temporary-folder', look: temporaryFolder },
  { name: 'variables', look: variables },
  { name: 'offline', look: offline },
  { name: 'proxy', look: proxies },
  { name: 'token', look: token },
  { name: 'hub', look: hub },
  { name: 'sources', look: sources },
  { name: 'updatedb', look: updatedb },
  { name: 'slurm', look: slurm },
  { name: 'mounts', look: mounts },
];
