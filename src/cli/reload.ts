/** `tmaxfs reload`: has a daemon look for newer commits now. */

import * as v from 'valibot';
import { commandDaemon } from '../daemon/control-client.js';
import { chooseMount } from './choose-mount.js';
import { printable } from './table.js';

const failureShape = v.object({ kind: v.literal('failure'), name: v.string(), reason: v.string() });
const poolShape = v.object({ name: v.string(), repository: v.string(), commit: v.string(), isChanged: v.boolean() });
const resultShape = v.object({ pools: v.array(poolShape), failures: v.number() });

/** Exit code 1 where a pool could not be renewed and others could. Errors: those of `commandDaemon`; EIO where none could, and why. */
export async function reloadCommand(named: string | undefined): Promise<void> {
  const mountpoint = chooseMount(named);
  const onLine = (line: unknown): void => {
    const { name, reason } = v.parse(failureShape, line);
    process.stderr.write(printable(`failed: ${name}: ${reason}\n`));
  };
  const { pools, failures } = v.parse(resultShape, await commandDaemon(mountpoint, '/reload', {}, { onLine }));
  for (const { name, repository, commit, isChanged } of pools) {
    const place = name === '' ? mountpoint : `${mountpoint}/${name}`;
    process.stdout.write(`${place} ${isChanged ? 'now shows' : 'still shows'} ${repository}@${commit}\n`);
  }
  if (failures > 0) process.exitCode = 1;
}
