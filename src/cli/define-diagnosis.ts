/** The commands that say what is wrong. */

import type { Command } from 'commander';
import { withMountOptions } from './option.js';

/** Adds `doctor`, `probe` and `bugreport`. After `mount`, whose options it takes. */
export function defineDiagnosis(tmaxfs: Command): void {
  withMountOptions(
    tmaxfs,
    tmaxfs
      .command('doctor')
      .description('what this machine lacks, and how to mend it; takes the words of mount; exit 1 if there is an error')
      .argument('[mountpoint]', 'a mount, or what is to be one')
      .option('--json', 'print the document, stable and in full', false),
  ).action(async (mountpoint: string | undefined, options) =>
    (await import('./doctor.js')).doctorCommand(mountpoint, options, variablesOf(tmaxfs)),
  );

  tmaxfs
    .command('probe')
    .description('fetch and open one image and run "true" in it by apptainer; exit 1 where that fails')
    .argument('[mountpoint]', 'may be left out where there is one; or the path of an image on one')
    .argument('[task]', 'as task, variant/task or a path (default: the smallest image; fetched if it is not on disk)')
    .option('--timeout <duration>', 'how long the container may take', '120')
    .action(async (mountpoint: string | undefined, task: string | undefined, options) =>
      (await import('./probe.js')).probeCommand(mountpoint, task, options),
    );

  withMountOptions(
    tmaxfs,
    tmaxfs
      .command('bugreport')
      .description('one text file for whoever helps, without secrets; takes the words of mount')
      .argument('[mountpoint]', 'default: all mounts')
      .option('--output <file>', 'default: tmaxfs-bugreport-HOST-TIME.txt here; "-" for standard output'),
  ).action(async (mountpoint: string | undefined, options) =>
    (await import('./bugreport.js')).bugreportCommand(mountpoint, options, variablesOf(tmaxfs)),
  );
}

/** The twins of all options of all commands. */
function variablesOf(tmaxfs: Command): readonly string[] {
  return tmaxfs.commands.flatMap(({ options }) => options.flatMap(({ envVar }) => envVar ?? []));
}
