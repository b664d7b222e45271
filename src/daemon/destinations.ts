/** Where a daemon publishes what it has fetched. */

import type { Logger } from 'pino';
import type { Destination } from '../destinations/destination.js';
import { DirectoryDestination } from '../destinations/directory-destination.js';
import { RegistryDestination } from '../destinations/registry-destination.js';
import { httpSettings } from '../sources/remote-source.js';
import { remoteSettings } from './hub-settings.js';
import { registrySecret } from './registry-secret.js';
import type { Settings } from './settings.js';
import type { DestinationChoice } from './source-choices.js';

/** Offline the directories alone. Errors: ENOTDIR, EINVAL, naming a directory that can't be used. */
export async function openDestinations(settings: Settings, log: Logger): Promise<readonly Destination[]> {
  const destinations: Destination[] = [];
  for (const choice of settings.publish) {
    if (choice.kind === 'directory' || !settings.offline) {
      destinations.push(await openDestination(choice, settings, log));
    }
  }
  return destinations;
}

/** Errors: as `openDestinations`. */
export async function openDestination(
  choice: DestinationChoice,
  settings: Settings,
  log: Logger,
): Promise<Destination> {
  const { publishReserve, publishSizeBytes, idleTimeoutMs } = settings;
  if (choice.kind === 'registry') {
    const { registry } = choice;
    const secret = registrySecret(settings.registryLogins, registry);
    return new RegistryDestination(registry, { http: httpSettings(remoteSettings(settings, log)), secret });
  }
  const limits = { reserve: publishReserve, limitBytes: publishSizeBytes };
  const destination = new DirectoryDestination(choice.folder, { limits, idleTimeoutMs });
  await destination.check();
  return destination;
}
