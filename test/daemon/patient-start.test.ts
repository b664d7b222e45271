import test from 'ava';
import { pino } from 'pino';
import { loadPatiently, type PatientStartOptions } from '../../src/daemon/patient-start.js';
import { TmaxError } from '../../src/errors.js';
import { recordingLog } from '../support/hub.js';

function options(changes: Partial<PatientStartOptions>): PatientStartOptions {
  return {
    timeoutMs: 60_000,
    signal: new AbortController().signal,
    log: pino({ level: 'silent' }),
    pauseMs: 1,
    ...changes,
  };
}

/** Fails so many times before it brings its result. */
function failing(times: number, errno: 'EHOSTUNREACH' | 'ETIMEDOUT' | 'EACCES') {
  let calls = 0;
  const load = async (): Promise<number> => {
    calls += 1;
    if (calls <= times) throw new TmaxError(errno, 'no answer');
    return calls;
  };
  return { load, calls: () => calls };
}

for (const errno of ['EHOSTUNREACH', 'ETIMEDOUT'] as const) {
  test(`a Hub that does not answer (${errno}) is asked again until it does, and each time it is said`, async (t) => {
    const { log, lines } = recordingLog();
    t.is(await loadPatiently(failing(3, errno).load, options({ log })), 4);
    t.is(lines.length, 3);
    t.like(lines[0], { reason: 'no answer' });
  });
}

test('an answer that says no is not asked for again', async (t) => {
  const { load, calls } = failing(1, 'EACCES');
  await t.throwsAsync(loadPatiently(load, options({})), { message: 'no answer' });
  t.is(calls(), 1);
});

test('without a limit of time it is tried once', async (t) => {
  const { load, calls } = failing(1, 'EHOSTUNREACH');
  await t.throwsAsync(loadPatiently(load, options({ timeoutMs: undefined })));
  t.is(calls(), 1);
});

test('once the time is up, the last failure is the answer', async (t) => {
  const { load, calls } = failing(Number.POSITIVE_INFINITY, 'EHOSTUNREACH');
  await t.throwsAsync(loadPatiently(load, options({ timeoutMs: 500 })), { message: 'no answer' });
  t.true(calls() >= 2);
});

test('a start that is called off ends at once, also in its pause', async (t) => {
  const starting = new AbortController();
  const { load } = failing(Number.POSITIVE_INFINITY, 'EHOSTUNREACH');
  const loaded = loadPatiently(load, options({ signal: starting.signal, pauseMs: 30_000 }));
  setImmediate(() => starting.abort());
  const error = await t.throwsAsync(loaded, { instanceOf: TmaxError });
  t.is(error.errno, 'EINTR');
});
