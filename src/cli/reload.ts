/** `tmaxfs reload`: has a daemon look for a newer commit now. */

import * as v from 'valibot';
import { commandDaemon } from '../daemon/control-client.js';
import { chooseMount } from './choose-mount.js';

const resultShape = v.object({ repository: v.string(), commit: v.string(), isChanged: v.boolean() });

/** Errors: those of `commandDaemon`; EIO where no newer catalog can be shown, and why. */
export async function reloadCommand(named: string | undefined): Promise<void> {
  const mountpoint = chooseMount(named);
  const result = await commandDaemon(mountpoint, '/reload', {});
  const { repository, commit, isChanged } = v.parse(resultShape, result);
  process.stdout.write(`${mountpoint} ${isChanged ? 'now shows' : 'still shows'} ${repository}@${commit}\n`);
}
