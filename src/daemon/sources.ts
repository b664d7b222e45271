/** Where a daemon fetches images from. */

import type { Logger } from 'pino';
import { DirectorySource } from '../sources/directory-source.js';
import { HubSource } from '../sources/hub-source.js';
import { RateGovernor, type RequestState } from '../sources/rate-governor.js';
import { type RemoteIdentity, RemoteSource, type RemoteSourceSettings } from '../sources/remote-source.js';
import type { Source } from '../sources/source.js';
import type { HealthReport } from '../sources/source-health.js';
import { hubSettings, remoteSettings } from './hub-settings.js';
import { registrySecret } from './registry-secret.js';
import type { Settings } from './settings.js';
import { type SourceChoice, sourceName } from './source-choices.js';

export interface OpenedSource {
  readonly source: Source;
  /** Where the requests to it stand; none for a directory. */
  readonly requests: () => readonly RequestState[];
  /** What keeps it from giving anything, as it looks at the start. */
  readonly warning?: string | undefined;
}

/** Where a source stands now, for `status` and metrics. */
export interface SourceState {
  readonly name: string;
  readonly requests: readonly RequestState[];
  readonly health: HealthReport;
}

export function stateOf({ source, requests }: OpenedSource): SourceState {
  return { name: source.name, requests: requests(), health: source.health.report() };
}

/**
 * In the order in which they are asked; offline the directories alone. Each has a governor of its own, but the Hub, which has that of the
 * catalog: one pause for both where it asks for one. Errors: ENOTDIR, naming a directory that can't be used; EINVAL.
 */
export async function openSources(
  settings: Settings,
  hubGovernor: RateGovernor,
  log: Logger,
): Promise<readonly OpenedSource[]> {
  const opened: OpenedSource[] = [];
  for (const choice of settings.sources) {
    if (choice.kind === 'directory' || !settings.offline) opened.push(await open(choice, settings, hubGovernor, log));
  }
  return opened;
}

async function open(
  choice: SourceChoice,
  settings: Settings,
  hubGovernor: RateGovernor,
  log: Logger,
): Promise<OpenedSource> {
  switch (choice.kind) {
    case 'directory': {
      const source = new DirectorySource(choice.folder, { idleTimeoutMs: settings.idleTimeoutMs });
      const warning = await source.check();
      if (warning !== undefined) log.warn({ source: source.name }, warning);
      return { source, requests: () => [], warning };
    }
    case 'hub':
      return {
        source: new HubSource(hubSettings(settings, log), hubGovernor),
        requests: () => hubGovernor.states(),
      };
    case 'template': {
      const name = sourceName(choice);
      const locator = { kind: 'template', name, template: choice.template } as const;
      return remote({ name, locator, secret: noSecret }, remoteSettings(settings, log));
    }
    case 'dragonfly': {
      const name = sourceName(choice);
      const { proxy, template = `${settings.endpoint}/datasets/{repo}/resolve/{commit}/{path}` } = choice;
      const locator = { kind: 'dragonfly', name, template } as const;
      // It fetches a blob from several peers by itself, and the token is not for it.
      const identity = { name, locator, secret: noSecret, isOneStream: true };
      return remote(identity, { ...remoteSettings(settings, log), proxy: undefined, forwardProxy: proxy });
    }
    case 'registry': {
      const { registry } = choice;
      const governor = new RateGovernor();
      const secret = registrySecret(settings.registryLogins, registry);
      const identity = { name: registry.shown, locator: { kind: 'registry', registry }, secret } as const;
      return {
        source: new RemoteSource(identity, remoteSettings(settings, log), governor),
        requests: () => governor.states(['api', 'storage']),
      };
    }
  }
}

function remote(identity: RemoteIdentity, settings: RemoteSourceSettings): OpenedSource {
  const governor = new RateGovernor();
  return { source: new RemoteSource(identity, settings, governor), requests: () => governor.states(['storage']) };
}

async function noSecret(): Promise<undefined> {
  return undefined;
}
