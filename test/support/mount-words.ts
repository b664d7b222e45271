/** The words of a `tmaxfs mount`, as its defaults on a machine of two cores are. */

import type { MountWords } from '../../src/daemon/settings.js';

export const MOUNT_WORDS: MountWords = {
  mountpoint: '/tmax',
  repo: 'org/pool',
  revision: 'main',
  sharedCache: false,
  cacheSize: '200G',
  reserveFree: '5%',
  verify: 'structure',
  verifyThreads: '2',
  arch: 'any',
  scrub: '30d',
  openTimeout: '540',
  connections: '4',
  maxFetches: '8',
  connectTimeout: '10',
  minSpeed: '16K',
  publishReserve: '5%',
  driver: 'auto',
  allowOther: false,
  noexec: false,
  offline: false,
  logLevel: 'info',
};
