/** The whole daemon, killed at random moments while processes open images of a cache too small for them. */

import { setTimeout as delay } from 'node:timers/promises';
import test from 'ava';
import { judgeCache } from '../support/judge-cache.js';
import { eventually } from '../support/mount-client.js';
import { RunningPython } from '../support/mount-user.js';
import { MountedPool } from '../support/mounted-pool.js';
import { hasEnded } from '../support/processes.js';
import { anySeed, Random } from '../support/random.js';
import { contentOf, smallPool } from '../support/small-pool.js';

/** Twice, since the runner wants to hear of a test now and then. */
const ROUNDS = 4;
const IMAGES = 8;
const LIMIT_BYTES = 700 * 1024;
/** From when the first image was read. */
const MAX_LIFE_MS = 400;

/** Opens and digests at random, in several threads, until it is told to stop; reports what it found wrong. */
const LOAD = `
import random, threading
folder, digests = args[0], args[1:]
wrong, served, first, stop = [], [0], threading.Event(), threading.Event()
def load(seed):
    chance = random.Random(seed)
    while not stop.is_set():
        task = chance.randrange(len(digests))
        try:
            content = open(f'{folder}/t{task}.sif', 'rb').read()
        except OSError as error:
            # The daemon has been killed, or all room is held open.
            if error.errno not in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOSPC, errno.ENOENT): wrong.append(str(error))
            stop.wait(0.001)
            continue
        if hashlib.sha256(content).hexdigest() == digests[task]: served[0] += 1
        else: wrong.append(f't{task}: {len(content)} bytes')
        first.set()
threads = [threading.Thread(target=load, args=(seed,)) for seed in range(6)]
for thread in threads: thread.start()
first.wait()
out('busy')
sys.stdin.readline()
stop.set()
for thread in threads: thread.join()
out([wrong, served[0]])`;

for (const part of [1, 2]) {
  test.serial(
    `${ROUNDS} kills of a busy daemon leave a cache with nothing wrong, and the next mount goes on, part ${part}`,
    async (t) => {
      const seed = anySeed();
      t.log(`seed ${seed}`);
      const random = new Random(seed);
      const { files, tasks } = smallPool(IMAGES);
      const images = new Map(files.map((file) => [file.sha256, { sha256: file.sha256, content: contentOf(file) }]));
      const args = ['--cache-size', String(LIMIT_BYTES), '--reserve-free', '0'];
      const pool = await MountedPool.start(t, { files, tasks, args });
      const digests = files.map(({ sha256 }) => sha256);
      let served = 0;
      for (let round = 1; round <= ROUNDS; round += 1) {
        const { pid } = await pool.status();
        const load = new RunningPython(t.teardown, 'root', LOAD, pool.path('v'), ...digests);
        t.is(await load.report(), 'busy');
        await delay(random.next() * MAX_LIFE_MS);
        process.kill(pid, 'SIGKILL');
        await eventually('the daemon has ended', () => hasEnded(pid) || undefined);
        load.tell('stop');
        const [wrong, count] = (await load.report()) as [string[], number];
        t.deepEqual(wrong, [], `round ${round}`);
        served += count;
        t.deepEqual(judgeCache(pool.cacheDirectory, images, LIMIT_BYTES).faults, [], `round ${round}`);
        await pool.mount();
      }
      t.log(`${served} images were read`);
      for (const [task, sha256] of digests.entries()) {
        const { stdout } = await pool.run('sha256sum', [pool.path(`v/t${task}.sif`)]);
        t.is(stdout.split(' ')[0], sha256);
      }
      t.deepEqual((await pool.status()).quarantine, []);
    },
  );
}
