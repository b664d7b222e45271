import test from 'ava';
import { FAILURES_TO_OPEN_CIRCUIT } from '../../src/sources/limits.js';
import { RateGovernor } from '../../src/sources/rate-governor.js';
import { requestedPauseMs } from '../../src/sources/rate-limit-headers.js';

const pauseOf = (headers: Record<string, string>, now?: number) =>
  requestedPauseMs({ status: 429, header: (name) => headers[name] }, now);

test('the pause is read from RateLimit, with a second on top, before Retry-After', (t) => {
  t.is(pauseOf({ ratelimit: '"resolvers";r=0;t=55' }), 56_000);
  t.is(pauseOf({ ratelimit: '"api";r=4;t=99, "resolvers";r=0;t=7' }), 8000);
  t.is(pauseOf({ ratelimit: '"resolvers";r=0;t=1', 'retry-after': '30' }), 2000);
  t.is(pauseOf({ ratelimit: '"resolvers";r=3;t=55', 'retry-after': '30' }), 30_000);
  t.is(pauseOf({ 'retry-after': 'Thu, 01 Jan 1970 00:00:10 GMT' }, 4000), 6000);
  t.is(pauseOf({ 'retry-after': 'Thu, 01 Jan 1970 00:00:10 GMT' }, 40_000), 0);
});

test('headers that make no sense ask for no pause', (t) => {
  for (const text of ['', 'soon', '-5', '1e9', '99999999999999999999'])
    t.is(pauseOf({ 'retry-after': text }, 0) ?? 0, 0);
  t.is(pauseOf({ ratelimit: '"resolvers";r=0;t=never' }), undefined);
  t.is(pauseOf({ ratelimit: '"resolvers";r=0;t=99999999999999999999' }), undefined);
  t.is(pauseOf({}), undefined);
});

test('a pause holds for every governor of the same memory, for its kind, and is never shortened', (t) => {
  const governor = new RateGovernor();
  const other = new RateGovernor(governor.memory);
  governor.pause('resolver', 60_000);
  other.pause('resolver', 10);
  t.true(other.waitMs('resolver') > 59_000);
  t.is(other.waitMs('storage'), 0);
  t.is(other.waitMs('api'), 0);
});

test('a server that answers nobody is asked by one at a time, until it answers', (t) => {
  const governor = new RateGovernor();
  const other = new RateGovernor(governor.memory);
  for (let failure = 1; failure < FAILURES_TO_OPEN_CIRCUIT; failure += 1) governor.unanswered('storage');
  t.true(other.admits('storage'));
  governor.unanswered('storage');
  const admitted = Array.from({ length: 20 }, () => other.admits('storage')).filter(Boolean);
  t.is(admitted.length, 1, 'the probe');
  t.true(other.admits('resolver'), 'others are not concerned');
  other.answered('storage');
  t.true(governor.admits('storage'));
  t.true(governor.admits('storage'));
});

test('what all threads have met is told by any of them', (t) => {
  const governor = new RateGovernor();
  const other = new RateGovernor(governor.memory);
  governor.tooMany('resolver');
  other.tooMany('resolver');
  governor.pause('resolver', 60_000);
  for (let failure = 0; failure < FAILURES_TO_OPEN_CIRCUIT; failure += 1) governor.unanswered('storage');
  const [api, resolver, storage] = other.states();
  t.deepEqual(api, { kind: 'api', tooManyRequests: 0, pausedMs: 0, isUnanswered: false });
  t.like(resolver, { kind: 'resolver', tooManyRequests: 2, isUnanswered: false });
  t.true((resolver?.pausedMs ?? 0) > 59_000);
  t.deepEqual(storage, { kind: 'storage', tooManyRequests: 0, pausedMs: 0, isUnanswered: true });
});
