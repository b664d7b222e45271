/** Where a daemon fetches images from. */

import { DirectorySource } from '../sources/directory-source.js';
import { HubSource, type HubSourceSettings } from '../sources/hub-source.js';
import type { RateGovernor } from '../sources/rate-governor.js';
import type { Source } from '../sources/source.js';
import type { Settings, SourceChoice } from './settings.js';

/** In the order in which they are asked; offline without the Hub. Errors: ENOTDIR, naming a directory that can't be used. */
export async function openSources(
  settings: Pick<Settings, 'sources' | 'offline' | 'idleTimeoutMs'>,
  hub: HubSourceSettings | undefined,
  governor: RateGovernor,
): Promise<readonly Source[]> {
  const { idleTimeoutMs } = settings;
  const sources: Source[] = [];
  for (const choice of usable(settings)) {
    if (choice.kind === 'directory') {
      const source = new DirectorySource(choice.folder, { idleTimeoutMs });
      await source.check();
      sources.push(source);
    } else if (hub !== undefined) sources.push(new HubSource(hub, governor));
  }
  return sources;
}

function usable({ sources, offline }: Pick<Settings, 'sources' | 'offline'>): readonly SourceChoice[] {
  return sources.filter(({ kind }) => kind !== 'hub' || !offline);
}
