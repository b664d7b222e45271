/** What `tmaxfs status` says of one daemon, on one screen or in one line. */

import { REMEDIES } from '../blobs/refusal.js';
import { counted } from '../counted.js';
import { formatBytes, formatMilliseconds } from '../daemon/amount.js';
import type { Percentiles, Status } from '../daemon/status.js';

/** Entries of each list on the one screen; `--json` has them all. */
const MAX_SHOWN = 10;
/** Callers that are named for one fetch. */
const MAX_CALLERS = 3;
const BAR_CELLS = 20;
const COMMIT = /^[0-9a-f]{40}$/;

export function oneLine({ pools, pid, cache, fetches, opens }: Status): string {
  const running = `${counted(fetches.running.length, 'fetch', 'fetches')} running, ${counted(opens.waiting.length, 'open')} waiting`;
  const shown = pools.map(({ repository, revision, commit }) => `${repository}@${revision} (${commit.slice(0, 12)})`);
  return `${shown.join(', ')}, pid ${pid}, ${formatBytes(cache.usedBytes)} of ${formatBytes(cache.limitBytes)} used, ${running}`;
}

/** Lines, each with its end. */
export function screenOf(status: Status): string {
  const { cache, fetches, opens, catalog } = status;
  const reads = status.passthrough ? 'reads go straight to the cache file' : 'reads are relayed';
  const variants = Object.entries(catalog.variants).map(([name, tasks]) => `${name} ${tasks.toLocaleString('en-US')}`);
  const reserved = cache.reservedBytes > 0 ? ` and ${formatBytes(cache.reservedBytes)} reserved for fetches` : '';
  const lines = [
    ...status.pools.map((pool) => `${placeOf(status, pool)}  ${shownBy(pool)}${status.offline ? '  offline' : ''}`),
    `  daemon    pid ${status.pid} since ${status.startedAt}, tmaxfs ${status.version}, driver ${status.driver}: ${reads}`,
    `  log       ${status.logFile ?? 'standard error of the daemon (under systemd: journalctl)'}`,
    ...(status.metricsUrl === null ? [] : [`  metrics   ${status.metricsUrl}`]),
    `  tasks     ${variants.join(', ')}; ${counted(catalog.blobs, 'blob')}${catalog.problems > 0 ? `; ${catalog.problems} left out (tmaxfs coverage)` : ''}`,
    `  cache     ${bar(cache.usedBytes / cache.limitBytes)} ${formatBytes(cache.usedBytes - cache.reservedBytes)} used${reserved} of ${formatBytes(cache.limitBytes)}`,
    `  disk      ${formatBytes(cache.diskAvailableBytes)} free, ${formatBytes(cache.reserveFreeBytes)} of that left alone, on the disk of ${cache.directory}${cache.isShared ? ', which its group shares' : ''}`,
    `  blobs     ${cache.idleBlobs + cache.leasedBlobs} ready, ${cache.leasedBlobs} of them held open, ${pinned(cache.pinned)}, ${fetches.evicted} evicted`,
    `  opens     ${opens.hits} at once from the cache${percentiles(opens.latency.hits)}, ${opens.misses} that had to wait for a fetch (also those in vain)${percentiles(opens.latency.waited)}, ${opens.waiting.length} waiting now`,
    `  fetches   ${fetchesOf(status)}; from ${status.sources.map(({ name }) => name).join(', ') || 'nowhere'}; verify level ${status.verifyLevel}`,
    ...sourcesOf(status),
    ...status.publishing.map(describePublishing),
  ];
  if (status.scrub !== null) {
    const { checkedBlobs, damagedBlobs, periodSeconds } = status.scrub;
    const days = (periodSeconds / 86_400).toLocaleString('en-US', { maximumFractionDigits: 2 });
    lines.push(
      `  scrub     ${checkedBlobs} hashed again, ${damagedBlobs} found damaged; each idle blob once in ${days} days`,
    );
  }
  for (const { name, revision, catalog: kind, follow } of status.pools) {
    const words = COMMIT.test(revision) ? 'of a commit that was named' : followed(follow);
    lines.push(`  catalog   ${name === '' ? '' : `${name}: `}${words} (${kind})`);
  }
  const mostWaited = [...fetches.running].sort((a, b) => b.waiters - a.waiters);
  lines.push(...section('on their way', mostWaited, (fetch) => describeFetch(fetch, opens.waiting)));
  lines.push(...section('quarantine', status.quarantine, describeRefusal));
  for (const cause of new Set(status.quarantine.map((refusal) => refusal.cause)))
    lines.push(`    do: ${REMEDIES[cause]}`);
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

function placeOf({ mountpoint }: Status, { name }: Status['pools'][number]): string {
  return name === '' ? mountpoint : `${mountpoint}/${name}`;
}

function shownBy({ repository, revision, commit, commitDate }: Status['pools'][number]): string {
  return `${repository}@${revision} (${commit.slice(0, 12)} of ${commitDate.slice(0, 10)})`;
}

function fetchesOf({ fetches }: Status): string {
  const queued = fetches.running.filter(({ phase }) => phase === 'queued').length;
  const rate = fetches.running.reduce((sum, { bytesPerSecond }) => sum + (bytesPerSecond ?? 0), 0);
  return [
    `${fetches.done} done (${formatBytes(fetches.bytes)})`,
    `${fetches.failed} failed`,
    `${fetches.running.length - queued} running${rate > 0 ? ` at ${formatBytes(rate)}/s` : ''}`,
    `${queued} queued`,
    `${fetches.retries} retries`,
  ].join(', ');
}

/** Of several sources what each has brought; of any, how it has kept somebody waiting, or come to nothing. */
function sourcesOf({ sources }: Status): readonly string[] {
  return sources.flatMap(({ name, health, requests }) => {
    const { brought, refused } = health;
    const answers = sources.length < 2 ? [] : [`${brought} brought, ${refused} not there`];
    const inHealth = healthOf(health);
    const words = requests.flatMap(({ kind, tooManyRequests, pausedSeconds, isUnanswered }) => [
      ...(tooManyRequests > 0 ? [`${kind}: "too many requests" (429) ${counted(tooManyRequests, 'time')}`] : []),
      ...(pausedSeconds > 0 ? [`${kind}: PAUSED as it asked for, ${pausedSeconds} s more`] : []),
      ...(isUnanswered ? [`${kind}: DOES NOT ANSWER, is asked once a second`] : []),
    ]);
    const all = [...answers, ...inHealth, ...words];
    return all.length === 0 ? [] : [`  ${name.padEnd(8)}  ${all.join('; ')}`];
  });
}

function healthOf({
  isLeftAlone,
  leftAloneSeconds,
  failuresInARow,
  wrongAnswers,
  lastFailure,
}: Status['sources'][number]['health']): readonly string[] {
  const wrong = wrongAnswers === 0 ? [] : [`brought something else than the image ${counted(wrongAnswers, 'time')}`];
  if (failuresInARow === 0 || lastFailure === null) return wrong;
  const last = `at ${lastFailure.at}: ${lastFailure.message}`;
  const left = isLeftAlone ? `LEFT ALONE for ${leftAloneSeconds} s more, ` : '';
  const failed = failuresInARow === 1 ? 'failed' : `${failuresInARow} fetches failed in a row, the last`;
  return [`${left}${failed} ${last}`, ...wrong];
}

function describePublishing(line: Status['publishing'][number]): string {
  const { name, published, publishedBytes, present, failed, skipped, queued, failure } = line;
  const counts = `${published} written (${formatBytes(publishedBytes)}), ${present} there already, ${failed} failed, ${skipped} skipped, ${queued} queued`;
  const trouble = failure === null ? '' : `; NOT since ${failure.at}, ${failure.errno}: ${failure.message}`;
  return `  publish   to ${name}: ${counts}${trouble}`;
}

function describeFetch(fetch: Status['fetches']['running'][number], waiting: Status['opens']['waiting']): string {
  const percent = Math.floor((100 * fetch.receivedBytes) / fetch.sizeBytes);
  const speed = fetch.bytesPerSecond === null ? '' : `, ${formatBytes(fetch.bytesPerSecond)}/s`;
  const left = fetch.etaSeconds === null ? '' : `, ${formatMilliseconds(fetch.etaSeconds * 1000)} left`;
  const faults = fetch.lastFault === null ? '' : `; attempt ${fetch.faults + 1}, after: ${fetch.lastFault}`;
  const callers = waiting.filter(({ name }) => name === `${fetch.name}.sif` || name === fetch.name);
  const named = callers.slice(0, MAX_CALLERS).map(({ pid, command }) => `${pid} (${command ?? 'unknown'})`);
  const more = callers.length > named.length ? ', ...' : '';
  const who = named.length === 0 ? '' : `: ${named.join(', ')}${more}`;
  return `${fetch.name}  ${fetch.phase} ${percent}% of ${formatBytes(fetch.sizeBytes)}${speed}${left}, for ${fetch.seconds} s, ${fetch.waiters} waiting${who}${faults}`;
}

function percentiles({ p50Ms, p99Ms }: Percentiles): string {
  if (p50Ms === null || p99Ms === null) return '';
  return ` (p50 ${formatMilliseconds(p50Ms)}, p99 ${formatMilliseconds(p99Ms)})`;
}

function bar(share: number): string {
  const filled = Math.round(Math.min(1, Math.max(0, share)) * BAR_CELLS);
  return `[${'#'.repeat(filled)}${'-'.repeat(BAR_CELLS - filled)}]`;
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

function pinned({ blobs, bytes, absentBlobs }: Status['cache']['pinned']): string {
  if (blobs + absentBlobs === 0) return 'none pinned';
  return `${blobs} pinned (${formatBytes(bytes)})${absentBlobs > 0 ? `, ${absentBlobs} more pinned and not fetched yet` : ''}`;
}
