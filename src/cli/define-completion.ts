/** The command that teaches a shell the others. */

import { Argument, type Command } from 'commander';
import { SHELLS } from './shells.js';

/** Adds `completion`. */
export function defineCompletion(tmaxfs: Command): void {
  tmaxfs
    .command('completion')
    .description('print what makes a shell complete these commands')
    .addArgument(new Argument('<shell>', 'which').choices(SHELLS))
    .action(async (shell: (typeof SHELLS)[number]) => {
      process.stdout.write((await import('./completion.js')).completionScript(shell, tmaxfs));
    });
}
