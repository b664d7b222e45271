/** What a daemon runs with, as its first line in the log. */

import type { Logger } from 'pino';
import { version } from '../version.js';
import type { Settings } from './settings.js';

/** What launchers leak into the environment decides what happens: it is said at every start. No secrets. */
export function logSettings(settings: Settings, log: Logger): void {
  log.info(
    { version, settings: shownSettings(settings) },
    `starting to mount ${settings.repository}@${settings.revision} on ${settings.mountpoint}`,
  );
}

/** Settings as they may be shown to anyone: of a token where it comes from, of a proxy where it leads. */
export function shownSettings({ token, proxy, ...shown }: Settings): Record<string, unknown> {
  return {
    ...shown,
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
