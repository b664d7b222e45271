/** A thread that loads the native module of the product as soon as it runs, and then waits. */

import { setTimeout as delay } from 'node:timers/promises';
import { loadLibc } from '../../src/libc.js';

loadLibc();
await delay(3_600_000);
