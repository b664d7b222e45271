/** What launchers leak into the environment: proxies that lead nowhere, and a Hub that is not to be asked. */

import { connect } from 'node:net';
import { messageOf, systemErrorCode, wordsOf } from '../../errors.js';
import { checkConnectionSettings } from '../../sources/dispatchers.js';
import { proxyFor, proxyUrl } from '../../sources/proxy.js';
import { error, note, ok, type Remark, warning } from '../finding.js';
import type { Machine } from '../machine.js';

const CONNECT_LIMIT_MS = 4_000;
const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

export async function offline({ environment, settings }: Machine): Promise<readonly Remark[]> {
  if (!settings.offline) return [ok('the Hub may be asked')];
  const why = 'a mount serves what is on this disk and fetches nothing: other images fail with EHOSTUNREACH';
  const variable = ['HF_HUB_OFFLINE', 'TMAXFS_OFFLINE'].find((name) => environment[name]?.trim());
  const [what, remedy] =
    variable === undefined
      ? ['--offline is given', 'leave it out']
      : [`${variable}=${environment[variable]} is set`, `unset ${variable}`];
  return [warning(what, why, remedy)];
}

/** A variable that nobody reads is an option that was never set. */
export async function variables({ environment, knownVariables }: Machine): Promise<readonly Remark[]> {
  const known = new Set(knownVariables);
  const unknown = Object.keys(environment).filter((name) => name.startsWith('TMAXFS_') && !known.has(name));
  if (unknown.length === 0) return [ok('every TMAXFS_ variable that is set is an option')];
  return unknown.sort().map((name) => {
    const why = 'it has no effect: what it was meant to set has its default';
    return warning(`${name} is set, and is no option`, why, `unset ${name}; docs/CONFIGURATION.md has all of them`);
  });
}

/** Connects to each proxy that is named, and says which of them the Hub is asked through. */
export async function proxies(machine: Machine): Promise<readonly Remark[]> {
  const { settings, environment } = machine;
  const { httpProxy, httpsProxy } = settings.proxy;
  try {
    checkConnectionSettings({ proxy: settings.proxy, connectTimeoutMs: CONNECT_LIMIT_MS });
  } catch (thrown) {
    return [error(wordsOf(thrown), 'no mount starts with it', 'set it to http://host:port, or unset it')];
  }
  const endpoint = new URL(settings.endpoint);
  const used = proxyFor(endpoint, settings.proxy);
  const named = [
    ['HTTPS_PROXY', httpsProxy],
    ['HTTP_PROXY', httpProxy],
  ] as const;
  const set = named.flatMap(([name, value]) => (value === undefined ? [] : [{ name, value: proxyUrl(value) }]));
  if (set.length === 0) return [ok(`no proxy: ${endpoint.origin} is asked directly`), ...unreadVariable(machine)];
  const remarks = await Promise.all(
    set.map(async ({ name, value }): Promise<Remark> => {
      const variable = environment[name.toLowerCase()]?.trim() ? name.toLowerCase() : name;
      const isUsed = used?.variable === name && !settings.offline;
      // A password may stand in it, wherever: scheme, host and port are all that is shown.
      const shown = `${variable} (${new URL(value).origin})`;
      const failure = await connectionFailure(new URL(value));
      if (failure === undefined) {
        return ok(
          isUsed
            ? `${shown} answers; ${endpoint.origin} is asked through it`
            : `${shown} answers; not used for ${endpoint.origin}`,
        );
      }
      const remedy = `unset ${name} ${name.toLowerCase()}, or set it to a proxy of this network`;
      if (isUsed) {
        return error(
          `${shown} is set and leads nowhere: ${failure}`,
          `${endpoint.origin} is asked through it, and through nothing else`,
          remedy,
        );
      }
      return note(
        `${shown} is set and leads nowhere: ${failure}`,
        `not used for ${endpoint.origin}; it fails whatever does use it`,
        remedy,
      );
    }),
  );
  return [...remarks, ...exemptions(machine), ...contradictions(machine)];
}

function exemptions({ settings }: Machine): readonly Remark[] {
  const endpoint = new URL(settings.endpoint);
  const isSet = endpoint.protocol === 'https:' ? settings.proxy.httpsProxy : settings.proxy.httpProxy;
  if (isSet === undefined || proxyFor(endpoint, settings.proxy) !== undefined) return [];
  return [ok(`NO_PROXY exempts ${endpoint.host}`)];
}

function unreadVariable({ environment }: Machine): readonly Remark[] {
  const name = ['all_proxy', 'ALL_PROXY'].find((one) => environment[one]?.trim());
  if (name === undefined) return [];
  const remedy = `export HTTPS_PROXY="$${name}", if it is an HTTP proxy`;
  return [note(`${name} is set, and not read here`, 'only HTTP_PROXY, HTTPS_PROXY and NO_PROXY are', remedy)];
}

/** Both spellings with different values: each program picks its own. */
function contradictions({ environment }: Machine): readonly Remark[] {
  return ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY'].flatMap((name) => {
    const [upper, lower] = [environment[name]?.trim(), environment[name.toLowerCase()]?.trim()];
    if (!upper || !lower || upper === lower) return [];
    const why = 'the lower case wins here, as in curl; other programs take the other';
    return [note(`${name} and ${name.toLowerCase()} differ`, why, `export ${name}="$${name.toLowerCase()}"`)];
  });
}

/** Why no connection comes about, or undefined. */
export function connectionFailure({ hostname, port, protocol }: URL): Promise<string | undefined> {
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  const socket = connect({ host, port: port === '' ? (DEFAULT_PORTS[protocol] ?? 80) : Number(port) });
  return new Promise<string | undefined>((resolve) => {
    socket.setTimeout(CONNECT_LIMIT_MS, () => resolve(`no answer within ${CONNECT_LIMIT_MS / 1000} s`));
    socket.once('connect', () => resolve(undefined));
    socket.once('error', (thrown) => resolve(systemErrorCode(thrown) ?? messageOf(thrown)));
  }).finally(() => socket.destroy());
}
