/** The group that may give orders to a daemon besides who mounted. */

import { messageOf, TmaxError } from '../errors.js';

/** A directory service may be asked over the network. */
const LOOKUP_TIMEOUT_MS = 20_000;
/** How getent(1) says that there is no such entry. */
const NOT_FOUND = 2;
const MAX_GID = 2 ** 32 - 2;

/**
 * The number of a group that is named, by name or number. Names are looked up as the whole system does (nsswitch.conf(5)), and so
 * where they come from a directory service too. Errors: EINVAL no such group, or it can't be looked up.
 */
export async function controlGroup(named: string): Promise<number> {
  if (/^\d{1,10}$/.test(named)) {
    if (Number(named) <= MAX_GID) return Number(named);
    throw unusable(`${named} is no group`);
  }
  // Loaded here: a start is to be quick, and most have no such group.
  const { execa } = await import('execa');
  const { exitCode, stdout, failed, cause } = await execa('getent', ['group', '--', named], {
    reject: false,
    timeout: LOOKUP_TIMEOUT_MS,
    stdin: 'ignore',
  });
  if (exitCode === NOT_FOUND) throw unusable(`there is no group "${named}"`);
  // As in group(5): name, password, number, members.
  const gid = /^[^:]*:[^:]*:(\d{1,10}):/.exec(stdout)?.[1];
  if (!failed && gid !== undefined) return Number(gid);
  throw unusable(
    `group "${named}" can't be looked up (getent: ${cause === undefined ? exitCode : messageOf(cause)}); give its number`,
  );
}

function unusable(words: string): TmaxError {
  return new TmaxError('EINVAL', `--control-group: ${words}`, { source: 'settings' });
}
