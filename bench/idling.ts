/** What a daemon costs that has the published pool mounted and nothing to do. */

import { setTimeout as delay } from 'node:timers/promises';
import { MountedPool } from '../test/support/mounted-pool.js';
import { poolImages, poolTaskMap } from '../test/support/pool-scale.js';
import type { Bench, Contestant } from './bench.js';
import { BenchLifetime } from './support/lifetime.js';
import { processorSeconds, residentBytes } from './support/resident.js';

/** V8 tidies up for a while after there has been work. */
const SETTLE_MS = 30_000;
const IDLE_MS = 10_000;
const AT_MOST_BYTES = 120e6;
/** Two ticks of the kernel's clock: 0.2 %. */
const AT_MOST_SECONDS = 0.02;

export const idling: Bench = {
  name: 'idle',
  description: `a daemon with 35,181 tasks and nothing to do (seconds of processor time in ${IDLE_MS / 1000} s)`,
  maxRounds: 1,
  setup: async () => {
    const lifetime = new BenchLifetime();
    const tasks = poolTaskMap();
    const pool = await MountedPool.start(lifetime, { files: poolImages(tasks), tasks });
    const idle = async (name: string): Promise<Contestant> => {
      const { pid } = await pool.status();
      return {
        name,
        run: async () => {
          await delay(SETTLE_MS);
          const before = processorSeconds(pid);
          await delay(IDLE_MS);
          return { seconds: processorSeconds(pid) - before, peakBytes: residentBytes(pid) };
        },
      };
    };
    const first = await idle('first start');
    const listed: Contestant = {
      name: 'after listing everything',
      run: async () => {
        await pool.run('sh', ['-c', `ls -lR ${pool.mountpoint} | tail -n 1`]);
        return (await idle('')).run();
      },
    };
    const goals = [first, listed].flatMap(({ name: contestant }) => [
      { contestant, of: 'peakBytes' as const, atMost: AT_MOST_BYTES },
      { contestant, atMost: AT_MOST_SECONDS },
    ]);
    return { subject: {}, contestants: [first, listed], goals, teardown: () => lifetime.end() };
  },
};
