/** Where a daemon publishes what it has fetched. */

import type { Destination } from '../destinations/destination.js';
import { DirectoryDestination } from '../destinations/directory-destination.js';
import type { DestinationChoice, Settings } from './settings.js';

/** Errors: ENOTDIR, EINVAL, naming a directory that can't be used. */
export async function openDestinations(settings: Settings): Promise<readonly Destination[]> {
  const destinations: Destination[] = [];
  for (const choice of settings.publish) destinations.push(await openDestination(choice, settings));
  return destinations;
}

/** Errors: as `openDestinations`. */
export async function openDestination(
  { folder }: DestinationChoice,
  {
    publishReserve,
    publishSizeBytes,
    idleTimeoutMs,
  }: Pick<Settings, 'publishReserve' | 'publishSizeBytes' | 'idleTimeoutMs'>,
): Promise<Destination> {
  const limits = { reserve: publishReserve, limitBytes: publishSizeBytes };
  const destination = new DirectoryDestination(folder, { limits, idleTimeoutMs });
  await destination.check();
  return destination;
}
