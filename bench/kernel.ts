/** The benches of the kernel driver: what is read, listed and opened through a mount, against the same on the local disk. */

import { apptainerStart } from './apptainer-start.js';
import type { Bench } from './bench.js';
import { idling } from './idling.js';
import { listing } from './listing.js';
import { lasting, opening, openingTogether } from './opening.js';
import { readingBenches } from './reading.js';

export const kernelBenches: readonly Bench[] = [
  ...readingBenches,
  listing,
  opening,
  openingTogether,
  apptainerStart,
  lasting,
  idling,
];
