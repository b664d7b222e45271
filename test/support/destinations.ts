/** A directory that nodes share, and destinations on it, as many as there are nodes. */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { RoomLimits } from '../../src/destinations/destination.js';
import { DirectoryDestination } from '../../src/destinations/directory-destination.js';
import { type Lifetime, temporaryFolder } from './temporary.js';

export const NO_LIMITS: RoomLimits = { reserve: { bytes: 0 }, limitBytes: undefined };

export function destinationOn(
  t: Lifetime,
  folder = temporaryFolder(t),
  {
    limits = NO_LIMITS,
    idleTimeoutMs = 90_000,
  }: { readonly limits?: RoomLimits; readonly idleTimeoutMs?: number } = {},
): DirectoryDestination {
  const destination = new DirectoryDestination(folder, { limits, idleTimeoutMs });
  t.teardown(() => destination.close());
  return destination;
}

/** Of what was published there, by digest. */
export function publishedIn(folder: string): string[] {
  return filesIn(join(folder, 'blobs')).sort();
}

/** Names of files, however deep. */
export function filesIn(folder: string): string[] {
  try {
    const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ name }) => name);
  } catch {
    return [];
  }
}
