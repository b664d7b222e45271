/**
 * The way of a fetch, walked once with the smallest requests: the revision, a page of the listing, the resolver, one byte from the
 * storage. On the way: time, clock, and how many requests are left.
 */

import * as v from 'valibot';
import type { PoolChoice } from '../../daemon/pool-choices.js';
import { wordsOf } from '../../errors.js';
import type { HttpReply } from '../../sources/http-client.js';
import { statusError } from '../../sources/hub-errors.js';
import { endpointText } from '../../sources/hub-settings.js';
import { resolveUrl } from '../../sources/hub-urls.js';
import { leftOver } from '../../sources/rate-limit-headers.js';
import { error, note, ok, type Remark, warning } from '../finding.js';
import { type HubAnswer, HubSession } from '../hub-session.js';
import type { Machine } from '../machine.js';

/** Certificates and signed addresses are good for hours; what differs by more than this is set wrong. */
const MAX_SKEW_SECONDS = 60;
const SLOW_ANSWER_MS = 3_000;
/** Below this share of a window's requests a warning is due. */
const LOW_SHARE = 0.1;
/** Where the policy is not told: of the anonymous, in 5 minutes. */
const LOW_REQUESTS = 50;

const commitShape = v.object({ sha: v.pipe(v.string(), v.regex(/^[0-9a-f]{40}$/)) });
const entriesShape = v.array(v.looseObject({ path: v.string(), lfs: v.optional(v.looseObject({})) }));

export async function hub(machine: Machine, signal: AbortSignal): Promise<readonly Remark[]> {
  if (machine.settings.offline) return [note('the Hub was not asked', 'this is offline, as a mount would be')];
  let session: HubSession;
  try {
    session = new HubSession(machine, signal);
  } catch (thrown) {
    return [error(wordsOf(thrown), 'no mount starts with it', null)];
  }
  try {
    return (await Promise.all(machine.settings.pools.map((pool) => walk(pool, session)))).flat();
  } finally {
    await session.close();
  }
}

async function walk({ repository, revision }: PoolChoice, session: HubSession): Promise<readonly Remark[]> {
  const remarks: Remark[] = [];
  const base = `${endpointText(session.endpoint)}/api/datasets/${repository}`;
  const hasToken = (await session.token().catch(() => undefined)) !== undefined;
  const ask = async (what: string, why: string, get: () => Promise<HubAnswer>, wanted: readonly number[]) => {
    try {
      const answer = await get();
      if (wanted.includes(answer.reply.status)) return answer;
      const context = { endpoint: session.endpoint.origin, repository, revision, hasToken };
      remarks.push(error(statusError(answer.reply, context).message, why, remedyFor(answer.reply)), ...clock(answer));
    } catch (thrown) {
      remarks.push(
        error(
          `${what}: ${wordsOf(thrown)}`,
          why,
          `curl -sS -o /dev/null -w '%{http_code}\\n' ${session.endpoint.origin}`,
        ),
      );
    }
    return undefined;
  };

  const info = await ask(
    'the Hub does not answer',
    'nothing new can be listed or fetched; what is on this disk is served',
    () => session.get(new URL(`${base}/revision/${encodeURIComponent(revision)}?expand=sha`), 'api'),
    [200],
  );
  if (info === undefined) return remarks;
  remarks.push(reached(info, session.endpoint), ...clock(info), ...headroom('api', info.reply));
  const commit = v.safeParse(commitShape, parseJson(info.body));
  if (!commit.success) {
    const why = 'a mount needs the commit of the revision';
    return [
      ...remarks,
      error(
        `${session.endpoint.origin} answers, and not as a Hub does`,
        why,
        'is there a login page between? look at it with curl',
      ),
    ];
  }
  const { sha } = commit.output;
  const listing = await ask(
    'the listing is not answered',
    'a mount needs it to show its tree',
    () => session.get(new URL(`${base}/tree/${sha}?recursive=true`), 'api'),
    [200],
  );
  if (listing === undefined) return remarks;
  const entries = v.safeParse(entriesShape, parseJson(listing.body));
  const file = entries.success ? entries.output.find(({ lfs }) => lfs !== undefined) : undefined;
  if (file === undefined)
    return [...remarks, note('the storage was not asked', 'the first page of the listing has no image')];
  const why = 'every fetch of an image starts there';
  const resolved = await ask(
    'the resolver does not answer',
    why,
    () => session.get(resolveUrl(session.endpoint, repository, sha, file.path), 'resolver', { follow: false }),
    [200, 302, 307],
  );
  if (resolved === undefined) return remarks;
  remarks.push(...headroom('resolvers', resolved.reply));
  if (resolved.reply.status === 200) return remarks;
  const storage = await ask(
    `the storage (${resolved.url.host}) does not answer`,
    'images come from there, not from the Hub itself: a firewall or proxy has to let both through',
    () => session.get(resolved.url, 'storage', { headers: { range: 'bytes=0-0' } }),
    [200, 206],
  );
  if (storage !== undefined) remarks.push(ok(`the storage (${storage.url.host}) answers in ${storage.tookMs} ms`));
  return remarks;
}

function reached({ tookMs }: HubAnswer, endpoint: URL): Remark {
  const what = `${endpoint.origin} answers in ${tookMs} ms`;
  return tookMs <= SLOW_ANSWER_MS
    ? ok(what)
    : warning(
        what,
        'every fetch waits that long before its first byte',
        'look for a dead proxy, resolver or IPv6 route: curl -v shows where the time goes',
      );
}

/** The clock of this machine against the answer's Date (RFC 9110, 6.6.1; whole seconds). */
function clock({ reply, tookMs }: HubAnswer): readonly Remark[] {
  const served = Date.parse(reply.header('date') ?? '');
  if (Number.isNaN(served)) return [];
  const seconds = Math.round((Date.now() - tookMs / 2 - served) / 1000);
  if (Math.abs(seconds) <= MAX_SKEW_SECONDS) return [ok('the clock agrees with the Hub')];
  return [
    warning(
      `the clock of this machine is ${Math.abs(seconds)} s ${seconds > 0 ? 'ahead of' : 'behind'} the Hub's`,
      'certificates and signed addresses are valid for a time: a wrong clock refuses good ones',
      'timedatectl set-ntp true, or chronyc makestep (as root)',
    ),
  ];
}

/** What is left of the window; the Hub counts its API and its resolver apart. */
function headroom(name: 'api' | 'resolvers', reply: HttpReply): readonly Remark[] {
  const left = leftOver(reply, name);
  if (left === undefined) return [];
  const { remaining, quota, resetSeconds } = left;
  const of = quota === undefined ? '' : ` of ${quota}`;
  const what = `${remaining}${of} requests (${name}) are left for ${resetSeconds} s`;
  if (remaining >= (quota === undefined ? LOW_REQUESTS : quota * LOW_SHARE)) return [ok(what)];
  const why =
    'beyond them the Hub answers 429, and all fetches pause until the window ends; other nodes behind one address count too';
  return [warning(what, why, 'set HF_TOKEN: limits of an account are higher and its own')];
}

function remedyFor(reply: HttpReply): string | null {
  if (reply.status === 429) return 'wait for the end of the window (5 minutes), and set HF_TOKEN';
  return null;
}

function parseJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}
