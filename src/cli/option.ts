/**
 * Options as every command has them: each that configures a daemon can be set by an environment variable of the same name too.
 */

import { type Command, Option } from 'commander';
import { CATALOG_CHOICES } from '../catalog/build-catalog.js';
import { DEFAULT_REPOSITORY, DEFAULT_REVISION } from '../daemon/pool-choices.js';
import { isYes } from '../daemon/settings.js';

/** What `defaultThreads` counts, the same on every machine. */
export const DEFAULT_THREADS = 'the cores, at most 4';
/** The one flag that is on by default, for root. */
export const ALLOW_OTHER = '--allow-other';

/** What is mounted, or was. */
export function poolOptions(): readonly Option[] {
  return [
    option('--repo <owner/name>', `dataset repository on the Hub (default: ${DEFAULT_REPOSITORY})`),
    option('--revision <name>', 'branch, tag or commit').default(DEFAULT_REVISION),
    listOption(
      '--pool <name=owner/repo>',
      'in the place of --repo, several repositories, each as a folder of that name: name=owner/repo or name=owner/repo@revision',
      /[\w.-]+=/,
    ),
    listOption(
      '--catalog <kind>',
      `what says which tasks there are: ${CATALOG_CHOICES.join(', ')}; of one of several pools: pool=kind (default: auto)`,
      /(?:[\w.-]+=)?[a-z-]+(?:,|$)/,
    ),
    listOption(
      '--name <template>',
      'how files are named from the rows of a manifest, as "{instance_id}.sif"; of one of several pools: pool=template (default: by their ids)',
      /[\w.-]+=/,
    ),
  ];
}

/** Of every command that opens the cache. */
export function cacheOptions(): readonly Option[] {
  return [
    option('--cache-dir <folder>', 'where blobs are kept (default: $XDG_CACHE_HOME/tmaxfs)'),
    flag(
      '--shared-cache',
      'trust the group of the cache directory: its members fill it, read from it and evict (default: no one else is let in)',
    ).default(false),
  ];
}

/** An option that the environment can set too: `--cache-dir` is TMAXFS_CACHE_DIR. A variable that is empty counts as unset. */
export function option(flags: string, description: string): Option {
  const twin = twinOf(flags);
  if (process.env[twin]?.trim() === '') delete process.env[twin];
  return new Option(flags, description).env(twin);
}

/** A yes/no option. Its twin says so in a word: where that is no, it is left out, or its opposite is meant where it has one. */
export function flag(flags: string, description: string): Option {
  const twin = twinOf(flags);
  const word = process.env[twin];
  // To commander a variable that is there at all says yes.
  if (word !== undefined && !isYes(word)) {
    delete process.env[twin];
    if (flags === ALLOW_OTHER && word.trim() !== '') process.env[twinOf(`--no-${ALLOW_OTHER.slice(2)}`)] = '1';
  }
  return new Option(flags, description).env(twin);
}

/** An option that may be given several times, in order; its twin names several with commas between. */
export function listOption(flags: string, description: string, isEntry: RegExp): Option {
  const separator = new RegExp(`,(?=${isEntry.source})`);
  return option(flags, description).argParser((text: string, previous: readonly string[] = []) => [
    ...previous,
    ...text.split(separator),
  ]);
}

/**
 * Gives a command the options of `mount`, which must be defined by then, so that the same words and variables mean the same. `wanted`:
 * whether it has a use for an option, by its name ("cache-dir"); default: for all.
 */
export function withMountOptions(
  tmaxfs: Command,
  command: Command,
  wanted: (name: string) => boolean = () => true,
): Command {
  const mount = tmaxfs.commands.find((one) => one.name() === 'mount');
  for (const one of mount?.options ?? []) if (wanted(one.name())) command.addOption(one);
  return command;
}

function twinOf(flags: string): string {
  const name = /^--([a-z-]+)/.exec(flags)?.[1] ?? '';
  return `TMAXFS_${name.replaceAll('-', '_').toUpperCase()}`;
}
