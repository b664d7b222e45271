/** `apptainer exec IMAGE true`, the page cache warm: from the local file, and through the real daemon. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { fileOf } from '../src/demo/fake-hub-repository.js';
import { apptainer, hasApptainer } from '../test/support/apptainer.js';
import { MountedPool } from '../test/support/mounted-pool.js';
import { demoImagesFolder } from '../test/support/paths.js';
import type { Bench, Contestant } from './bench.js';
import { BenchLifetime } from './support/lifetime.js';

const AT_MOST = 1.05;

export const apptainerStart: Bench = {
  name: 'apptainer',
  description: '`apptainer exec IMAGE true`, warm',
  setup: async () => {
    if (!hasApptainer) throw new Error('there is no apptainer: run test/support/apptainer-root build');
    const lifetime = new BenchLifetime();
    const file = fileOf('images/0.sif', readFileSync(join(demoImagesFolder, 'tiny-gzip.sif')));
    const pool = await MountedPool.start(lifetime, { files: [file], tasks: { v: { t0: file.path } } });
    const local = join(pool.folder, 'local.sif');
    await execa('cp', [pool.path('v/t0.sif'), local]);
    const exec = (name: string, image: string): Contestant => ({
      name,
      run: async () => {
        const startedMs = performance.now();
        const { exitCode, stderr } = await apptainer(['exec', image, '/bin/busybox', 'true'], { folder: pool.folder });
        if (exitCode !== 0) throw new Error(stderr);
        return { seconds: (performance.now() - startedMs) / 1000 };
      },
    });
    const contestants = [exec('local file', local), exec('tmaxfs', pool.path('v/t0.sif'))];
    for (const contestant of contestants) await contestant.run();
    return {
      subject: { bytes: file.sizeBytes },
      contestants,
      goals: [{ contestant: 'tmaxfs', reference: 'local file', atMost: AT_MOST }],
      teardown: () => lifetime.end(),
    };
  },
};
