/** Threads of the real daemon, as the kernel shows them: /proc/<pid>/task/<tid>/{stat,sched} of proc(5). */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { systemErrorCode } from '../src/errors.js';
import { MountedPool } from './support/mounted-pool.js';
import { smallPool } from './support/small-pool.js';

/** With passthrough one is enough. */
const MAX_READING_THREADS = 2;

interface Thread {
  readonly niceness: number;
  /** Undefined where the kernel does not tell, or knows one length of turns for all. */
  readonly turnUs: number | undefined;
}

/** The main thread first. Those that end meanwhile are left out. */
function threadsOf(pid: number): Thread[] {
  // Not by their numbers, which begin anew at the kernel's largest.
  const others = readdirSync(`/proc/${pid}/task`).filter((tid) => tid !== String(pid));
  return [String(pid), ...others].flatMap((tid) => threadAt(`/proc/${pid}/task/${tid}`));
}

function threadAt(folder: string): Thread[] {
  try {
    // The 19th field; the second is a name in parentheses, which may hold spaces.
    const fields = readFileSync(`${folder}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    const slice = /^se\.slice\s+:\s+(\d+)$/m.exec(schedulingOf(folder))?.[1];
    return [{ niceness: Number(fields[16]), turnUs: slice === undefined ? undefined : Number(slice) / 1000 }];
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes(systemErrorCode(error) ?? '')) return [];
    throw error;
  }
}

/** Empty where the kernel does not tell. */
function schedulingOf(folder: string): string {
  return existsSync(`${folder}/sched`) ? readFileSync(`${folder}/sched`, 'utf8') : '';
}

async function daemonThreads(t: ExecutionContext): Promise<Thread[]> {
  const pool = await MountedPool.start(t, smallPool(1));
  const { exitCode, stderr } = await pool.run('cat', [pool.path('v/t0.sif')]);
  t.is(exitCode, 0, stderr);
  return threadsOf((await pool.status()).pid);
}

const isRoot = process.getuid?.() === 0;

(isRoot ? test : test.skip)('of root’s daemon the threads that answer the kernel go before all others', async (t) => {
  const own = threadsOf(process.pid)[0]?.niceness ?? 0;
  const [main, ...others] = await daemonThreads(t);
  t.is(main?.niceness, own - 10);
  const better = others.filter(({ niceness }) => niceness < own);
  t.true(better.length >= 1 && better.length <= MAX_READING_THREADS);
  t.true(others.filter(({ niceness }) => niceness === own).length >= 2, 'those that fetch and prove');
});

test('threads that answer the kernel have short turns, those that fetch and prove long ones', async (t) => {
  const usual = threadsOf(process.pid)[0]?.turnUs;
  const [main, ...others] = await daemonThreads(t);
  if (usual === undefined || main?.turnUs === undefined || main.turnUs === usual) {
    t.log('this kernel knows one length of turns for all');
    t.pass();
    return;
  }
  t.is(main.turnUs, 100);
  const reading = others.filter(({ turnUs }) => turnUs === 100).length;
  t.true(reading >= 1 && reading <= MAX_READING_THREADS);
  t.true(others.some(({ turnUs }) => turnUs === 20_000));
});

test('where a container refuses priorities and turns, all threads work without them', async (t) => {
  const script = new URL('./support/without-priorities.js', import.meta.url).pathname;
  const { stdout, stderr } = await execa(process.execPath, [script], { reject: false });
  t.is(stdout, 'ok', stderr);
});
