import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { fileLog } from '../../src/daemon/log.js';
import { temporaryFolder } from '../support/temporary.js';

test('a file has a line of JSON each, and of failures that repeat one with their number at the end', async (t) => {
  const path = join(temporaryFolder(t), 'log');
  const heard: string[] = [];
  const { log, close } = fileLog('info', path, (words) => heard.push(words));
  for (let number = 0; number < 500; number += 1) {
    const reason = `https://hub.example/${number} answers 503`;
    log.warn({ errno: 'EHOSTUNREACH', source: 'hub', reason }, `fetch of v/t${number} failed: EHOSTUNREACH`);
    log.info({ attempt: number, waitMs: 1, reason }, 'fetching on after a fault');
    log.info({ bytes: number }, `fetched v/t${number}`);
  }
  log.warn('of a warning that is no failure, none is left out');
  log.warn('of a warning that is no failure, none is left out');
  await close();
  const lines = readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  t.is(lines.filter(({ msg }) => String(msg).startsWith('fetched')).length, 500);
  t.is(lines.filter(({ msg }) => String(msg).startsWith('of a warning')).length, 2);
  t.is(lines.filter(({ msg }) => String(msg).startsWith('fetching on')).length, 1);
  const failures = lines.filter(({ level }) => level === 'warn').filter(({ errno }) => errno === 'EHOSTUNREACH');
  t.is(failures.length, 2);
  t.like(failures[0], { msg: 'fetch of v/t0 failed: EHOSTUNREACH', source: 'hub' });
  t.like(failures[1], {
    msg: '499 more like this within 60 s: fetch of v/t0 failed: EHOSTUNREACH',
    source: 'hub',
    count: 499,
    latest: 'fetch of v/t499 failed: EHOSTUNREACH: https://hub.example/499 answers 503',
  });
  t.like(
    lines.find(({ msg }) => String(msg).includes('fetching on') && String(msg).includes('more')),
    {
      level: 'info',
      count: 499,
    },
  );
  t.true(heard.length >= 1000, 'who waits for a start hears of each');
});
