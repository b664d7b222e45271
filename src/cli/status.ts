/** `tmaxfs status`: one screen of what a daemon is doing, or its whole document. */

import { setTimeout as delay } from 'node:timers/promises';
import { formatBytes } from '../daemon/amount.js';
import { askDaemon } from '../daemon/control-client.js';
import type { Status } from '../daemon/status.js';
import { wordsOf } from '../errors.js';
import { chooseMount, mountpointsOfAll } from './choose-mount.js';
import { printable } from './table.js';

const WATCH_INTERVAL_MS = 2000;
/** Entries of each list on the one screen; `--json` has them all. */
const MAX_SHOWN = 10;
const CLEAR_SCREEN = '\u001b[H\u001b[2J';

/** Errors: those of `askDaemon`, unless several mounts are asked for: then each is one line, and an error's too. */
export async function statusCommand(
  named: string | undefined,
  options: { readonly json: boolean; readonly watch: boolean },
): Promise<void> {
  const mountpoints = named === undefined ? mountpointsOfAll() : [chooseMount(named)];
  const [only, ...others] = mountpoints;
  do {
    const text =
      only !== undefined && others.length === 0
        ? await oneMount(only, options.json)
        : await severalMounts(mountpoints, options.json);
    if (options.watch && process.stdout.isTTY) process.stdout.write(CLEAR_SCREEN);
    process.stdout.write(text);
    if (options.watch) await delay(WATCH_INTERVAL_MS);
  } while (options.watch);
}

async function oneMount(mountpoint: string, json: boolean): Promise<string> {
  const status = await statusOf(mountpoint);
  return json ? `${JSON.stringify(status, null, 2)}\n` : printable(describe(status));
}

/** One that does not answer, or whose daemon is of a version with another document, is a line too. */
async function severalMounts(mountpoints: readonly string[], json: boolean): Promise<string> {
  const answers = await Promise.all(
    mountpoints.map(async (mountpoint) => {
      try {
        const status = await statusOf(mountpoint);
        return { mountpoint, status, line: oneLine(status) };
      } catch (error) {
        return { mountpoint, line: wordsOf(error) };
      }
    }),
  );
  if (json) return `${JSON.stringify(answers, null, 2)}\n`;
  return printable(answers.map(({ mountpoint, line }) => `${mountpoint}  ${line}\n`).join(''));
}

async function statusOf(mountpoint: string): Promise<Status> {
  // The daemon is of this package: its documents are of our own types.
  return (await askDaemon(mountpoint, '/status')) as Status;
}

function oneLine({ repository, revision, commit, pid, cache, fetches, opens }: Status): string {
  const running = `${fetches.running.length} fetches running, ${opens.waiting.length} opens waiting`;
  return `${repository}@${revision} (${commit.slice(0, 12)}), pid ${pid}, ${formatBytes(cache.usedBytes)} of ${formatBytes(cache.limitBytes)} used, ${running}`;
}

function describe(status: Status): string {
  const { cache, fetches, opens, catalog, follow } = status;
  const reads = status.passthrough ? 'reads go straight to the cache file' : 'reads are relayed';
  const variants = Object.entries(catalog.variants).map(([name, tasks]) => `${name} ${tasks.toLocaleString('en-US')}`);
  const reserved = cache.reservedBytes > 0 ? ` and ${formatBytes(cache.reservedBytes)} reserved for fetches` : '';
  const lines = [
    `${status.mountpoint}  ${status.repository}@${status.revision} (${status.commit.slice(0, 12)} of ${status.commitDate.slice(0, 10)})${status.offline ? '  offline' : ''}`,
    `  daemon    pid ${status.pid} since ${status.startedAt}, tmaxfs ${status.version}, driver ${status.driver}: ${reads}`,
    `  log       ${status.logFile ?? 'standard error of the daemon (under systemd: journalctl)'}`,
    `  tasks     ${variants.join(', ')}; ${catalog.blobs.toLocaleString('en-US')} blobs${catalog.problems > 0 ? `; ${catalog.problems} left out (tmaxfs coverage)` : ''}`,
    `  cache     ${formatBytes(cache.usedBytes - cache.reservedBytes)} used${reserved} of ${formatBytes(cache.limitBytes)}, ${formatBytes(cache.diskAvailableBytes)} free on the disk of ${cache.directory}`,
    `  blobs     ${cache.idleBlobs + cache.leasedBlobs} ready, ${cache.leasedBlobs} of them held open, ${pinned(cache.pinned)}, ${fetches.evicted} evicted`,
    `  opens     ${opens.hits} at once from the cache, ${opens.misses} that had to wait for a fetch (also those in vain), ${opens.waiting.length} waiting now`,
    `  fetches   ${fetches.done} done (${formatBytes(fetches.bytes)}), ${fetches.failed} failed, ${fetches.running.length} running; verify level ${status.verifyLevel}`,
  ];
  if (status.scrub !== null) {
    const { checkedBlobs, damagedBlobs, periodSeconds } = status.scrub;
    const days = (periodSeconds / 86_400).toLocaleString('en-US', { maximumFractionDigits: 2 });
    lines.push(
      `  scrub     ${checkedBlobs} hashed again, ${damagedBlobs} found damaged; each idle blob once in ${days} days`,
    );
  }
  if (!/^[0-9a-f]{40}$/.test(status.revision)) lines.push(`  catalog   ${followed(follow)}`);
  for (const fetch of fetches.running.slice(0, MAX_SHOWN)) {
    const percent = Math.floor((100 * fetch.receivedBytes) / fetch.sizeBytes);
    const faults = fetch.lastFault === null ? '' : `; attempt ${fetch.faults + 1}, after: ${fetch.lastFault}`;
    lines.push(
      `    ${fetch.name}  ${fetch.phase} ${percent}% of ${formatBytes(fetch.sizeBytes)}, ${fetch.seconds} s, ${fetch.waiters} waiting${faults}`,
    );
  }
  lines.push(...section('quarantine', status.quarantine, describeRefusal));
  // What is in quarantine has its reason there.
  const refused = new Set(status.quarantine.map(({ path }) => path));
  const newestFirst = status.lastFailures.filter(({ path }) => !refused.has(path)).reverse();
  lines.push(
    ...section('failures', newestFirst, ({ at, names, path, errno, message }) => {
      return `${at} ${subject(names)}${message.includes(path) ? '' : `${path}: `}${errno}: ${message}`;
    }),
  );
  return `${lines.join('\n')}\n`;
}

function pinned({ blobs, bytes, absentBlobs }: Status['cache']['pinned']): string {
  if (blobs + absentBlobs === 0) return 'none pinned';
  return `${blobs} pinned (${formatBytes(bytes)})${absentBlobs > 0 ? `, ${absentBlobs} more pinned and not fetched yet` : ''}`;
}

function followed({ intervalSeconds, failure }: Status['follow']): string {
  if (failure !== null) return `NOT renewed at ${failure.at}, ${failure.errno}: ${failure.message}`;
  return intervalSeconds === null
    ? 'stays at this commit until "tmaxfs reload", or a mount with --follow'
    : `looked for a newer commit every ${intervalSeconds.toLocaleString('en-US')} s`;
}

function describeRefusal({ names, path, source, code, reason }: Status['quarantine'][number]): string {
  return `${subject(names)}${path} from ${source}: ${code}: ${reason}`;
}

/** "v/t: ", "v/t and 2 more: ", or nothing. */
function subject([first, ...others]: readonly string[]): string {
  if (first === undefined) return '';
  return `${first}${others.length > 0 ? ` and ${others.length} more` : ''}: `;
}

function section<Entry>(title: string, entries: readonly Entry[], line: (entry: Entry) => string): string[] {
  if (entries.length === 0) return [];
  const more = entries.length > MAX_SHOWN ? [`    and ${entries.length - MAX_SHOWN} more (--json)`] : [];
  return [`  ${title}`, ...entries.slice(0, MAX_SHOWN).map((entry) => `    ${line(entry)}`), ...more];
}
