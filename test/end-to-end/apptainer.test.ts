import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { fileOf } from '../../src/demo/fake-hub-repository.js';
import { apptainer, hasApptainer } from '../support/apptainer.js';
import { MountedPool } from '../support/mounted-pool.js';
import { demoImagesFolder } from '../support/paths.js';

const needsApptainer = hasApptainer ? test : test.skip;

for (const asUser of [false, true]) {
  const who = asUser ? 'an ordinary user' : 'root';
  needsApptainer(`apptainer runs an image cold and warm, as ${who}`, async (t) => {
    const files = ['tiny-gzip', 'tiny-zstd'].map((name) =>
      fileOf(`images/${name}.sif`, readFileSync(join(demoImagesFolder, `${name}.sif`))),
    );
    const tasks = { solvable: Object.fromEntries(files.map(({ path }, index) => [`task_${index}`, path])) };
    const pool = await MountedPool.start(t, { files, tasks });
    for (const [index, file] of files.entries()) {
      const image = pool.path('solvable', `task_${index}.sif`);
      for (const round of ['cold', 'warm']) {
        const run = await apptainer(['exec', image, '/bin/busybox', 'echo', `${round} run`], {
          folder: pool.folder,
          asUser,
        });
        t.is(run.stdout, `${round} run`, run.stderr);
      }
      t.is(pool.hub.requests.about(file.path, 'cdn').length, 1);
    }
  });
}
