/** `tmaxfs status`: one screen of what a daemon is doing, or its whole document. */

import { setTimeout as delay } from 'node:timers/promises';
import { formatBytes } from '../daemon/amount.js';
import { askDaemon } from '../daemon/control-client.js';
import type { Status } from '../daemon/status.js';
import { chooseMount } from './choose-mount.js';

const WATCH_INTERVAL_MS = 2000;
/** Entries of each list on the one screen; `--json` has them all. */
const MAX_SHOWN = 10;
const CLEAR_SCREEN = '\u001b[H\u001b[2J';

/** Errors: those of `askDaemon`. */
export async function statusCommand(
  named: string | undefined,
  options: { readonly json: boolean; readonly watch: boolean },
): Promise<void> {
  const mountpoint = chooseMount(named);
  do {
    // The daemon is of this package and runs as this user or as root: its documents are of our own types.
    const status = (await askDaemon(mountpoint, '/status')) as Status;
    if (options.watch && process.stdout.isTTY) process.stdout.write(CLEAR_SCREEN);
    process.stdout.write(options.json ? `${JSON.stringify(status, null, 2)}\n` : describe(status));
    if (options.watch) await delay(WATCH_INTERVAL_MS);
  } while (options.watch);
}

function describe(status: Status): string {
  const { cache, fetches, opens, catalog } = status;
  const reads = status.passthrough ? 'reads go straight to the cache file' : 'reads are relayed';
  const variants = Object.entries(catalog.variants).map(([name, tasks]) => `${name} ${tasks.toLocaleString('en-US')}`);
  const { failure } = status.follow;
  const lines = [
    `${status.mountpoint}  ${status.repository}@${status.revision} (${status.commit.slice(0, 12)})${status.offline ? '  offline' : ''}`,
    `  daemon    pid ${status.pid} since ${status.startedAt}, tmaxfs ${status.version}, driver ${status.driver}: ${reads}`,
    `  tasks     ${variants.join(', ')}; ${catalog.blobs.toLocaleString('en-US')} blobs${catalog.problems > 0 ? `; ${catalog.problems} left out (tmaxfs coverage)` : ''}`,
    `  cache     ${formatBytes(cache.usedBytes)} of ${formatBytes(cache.limitBytes)} used, ${formatBytes(cache.diskAvailableBytes)} free on the disk of ${cache.directory}`,
    `  blobs     ${cache.idleBlobs + cache.leasedBlobs} ready, ${cache.leasedBlobs} of them held open, ${fetches.evicted} evicted`,
    `  opens     ${opens.hits} from the cache, ${opens.misses} that had to wait`,
    `  fetches   ${fetches.done} done (${formatBytes(fetches.bytes)}), ${fetches.failed} failed, ${fetches.running.length} running; verify level ${status.verifyLevel}`,
  ];
  if (status.scrub !== null) {
    const { checkedBlobs, damagedBlobs, periodSeconds } = status.scrub;
    const days = (periodSeconds / 86_400).toLocaleString('en-US', { maximumFractionDigits: 2 });
    lines.push(
      `  scrub     ${checkedBlobs} hashed again, ${damagedBlobs} found damaged; each idle blob once in ${days} days`,
    );
  }
  if (failure !== null) {
    lines.push(`  catalog   NOT renewed at ${failure.at}, ${failure.errno}: ${failure.message}`);
  }
  for (const fetch of fetches.running.slice(0, MAX_SHOWN)) {
    const percent = Math.floor((100 * fetch.receivedBytes) / fetch.sizeBytes);
    lines.push(
      `    ${fetch.name}  ${fetch.phase} ${percent}% of ${formatBytes(fetch.sizeBytes)}, ${fetch.seconds} s, ${fetch.waiters} waiting`,
    );
  }
  lines.push(
    ...section(
      'quarantine',
      status.quarantine,
      ({ path, code, reason, source }) => `${path} from ${source}: ${code}: ${reason}`,
    ),
  );
  const newestFirst = [...status.lastFailures].reverse();
  lines.push(
    ...section('failures', newestFirst, ({ at, path, errno, message }) => `${at} ${path}: ${errno}: ${message}`),
  );
  return `${lines.join('\n')}\n`;
}

function section<Entry>(title: string, entries: readonly Entry[], line: (entry: Entry) => string): string[] {
  if (entries.length === 0) return [];
  const more = entries.length > MAX_SHOWN ? [`    and ${entries.length - MAX_SHOWN} more (--json)`] : [];
  return [`  ${title}`, ...entries.slice(0, MAX_SHOWN).map((entry) => `    ${line(entry)}`), ...more];
}
