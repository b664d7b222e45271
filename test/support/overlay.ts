/** A folder on an overlay: what lies there can't be passed through by the kernel, as in most containers. */

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { type Lifetime, temporaryFolder } from './temporary.js';

export async function overlayFolder(lifetime: Lifetime): Promise<string> {
  const folder = temporaryFolder(lifetime);
  const [merged, lower, upper, work] = ['merged', 'lower', 'upper', 'work'].map((name) => {
    const path = join(folder, name);
    mkdirSync(path);
    return path;
  });
  if (merged === undefined) throw new Error('no folder');
  const layers = `lowerdir=${lower},upperdir=${upper},workdir=${work}`;
  await execa('mount', ['-t', 'overlay', 'overlay', '-o', layers, merged]);
  lifetime.teardown(() => execa('umount', ['-l', merged]).then(() => undefined));
  return merged;
}
