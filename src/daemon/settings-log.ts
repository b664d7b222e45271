/** What a daemon runs with, as its first line in the log. */

import type { Logger } from 'pino';
import { proxyFor, proxyUrl } from '../sources/proxy.js';
import { version } from '../version.js';
import { describePool } from './pool-choices.js';
import type { Settings } from './settings.js';
import { sourceName } from './source-choices.js';

/** What launchers leak into the environment decides what happens: it is said at every start. No secrets. */
export function logSettings(settings: Settings, log: Logger): void {
  log.info(
    { version, settings: shownSettings(settings) },
    `starting to mount ${settings.pools.map(describePool).join(', ')} on ${settings.mountpoint}, ${wayOf(settings)}`,
  );
}

/** Where everything is to come from; also for a terminal, which is not shown the settings. */
function wayOf({ offline, endpoint, proxy }: Settings): string {
  if (offline) return 'offline';
  const url = new URL(endpoint);
  const value = url.protocol === 'https:' ? proxy.httpsProxy : proxy.httpProxy;
  // One that is no address is told by the first request, in words of its own.
  if (value === undefined || !URL.canParse(proxyUrl(value))) return `from ${endpoint}`;
  const found = proxyFor(url, proxy);
  return found === undefined ? `from ${endpoint}` : `from ${endpoint} through ${found.variable} ${found.shown}`;
}

/** Settings as they may be shown to anyone: of a token where it comes from, of a proxy where it leads. */
export function shownSettings({ token, proxy, sources, publish, ...shown }: Settings): Record<string, unknown> {
  return {
    ...shown,
    sources: sources.map(sourceName),
    publish: publish.map(sourceName),
    proxy: withoutSecrets(proxy),
    token: token.value === undefined ? `from ${token.file ?? 'nowhere'}, if there` : 'from the environment',
  };
}

/** A proxy's address may hold a password, wherever it stands: only what is known to be none is shown. */
function withoutSecrets({ noProxy, ...proxies }: Settings['proxy']): Record<string, string> {
  const shown = Object.entries(proxies).map(([name, value]): [string, string] => {
    const origin = URL.canParse(String(value)) ? new URL(String(value)).origin : 'null';
    return [name, origin === 'null' ? 'set, but no address that can be read' : origin];
  });
  return { ...Object.fromEntries(shown), ...(noProxy === undefined ? {} : { noProxy }) };
}
