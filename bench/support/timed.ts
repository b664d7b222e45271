/** Times a command as bash does: by the clock, and by the processor, which hardly depends on what else the machine does. */

import { execa } from 'execa';
import type { Figures } from '../bench.js';

/** Errors: the command fails. */
export async function timed(
  file: string,
  args: readonly string[],
): Promise<{ readonly stdout: string; readonly figures: Figures }> {
  const script = 'TIMEFORMAT="%R %U %S"; time "$@"';
  const { stdout, stderr } = await execa('bash', ['-c', script, 'bash', file, ...args], { stdin: 'ignore' });
  const [real, user, system] = (stderr.split('\n').at(-1) ?? '').split(' ').map(Number);
  if (real === undefined || user === undefined || system === undefined || Number.isNaN(real + user + system)) {
    throw new Error(`bash did not say how long ${file} took: ${stderr}`);
  }
  return { stdout, figures: { seconds: real, processorSeconds: user + system } };
}
