/** The manual page, written from the definitions of the commands: roff, in the macros of man(7). */

import type { Command, Option } from 'commander';

export interface ManualPageParts {
  readonly program: Command;
  readonly version: string;
}

/** When the words that are not the commands' own were last changed. */
const REVISED = '2026-11-30';

/** The text of tmaxfs(1); the same wherever it is made. */
export function manualPage({ program, version }: ManualPageParts): string {
  const lines = [
    '.\\" Written by "npm run docs" from the definitions of the commands. Do not edit.',
    `.TH TMAXFS 1 "${REVISED}" "tmaxfs ${version}" "User Commands"`,
    '.SH NAME',
    'tmaxfs \\- mount a pool of Apptainer images from the Hugging Face Hub',
    '.SH SYNOPSIS',
    ...program.commands.flatMap((command, index) => [
      ...(index > 0 ? ['.br'] : []),
      [`\\fBtmaxfs ${roff(command.name())}\\fR`, roff(usageOf(command))].join(' ').trim(),
    ]),
    '.SH DESCRIPTION',
    ...paragraphs(DESCRIPTION),
    '.SH COMMANDS',
    ...program.commands.flatMap(commandSection),
    '.SH ENVIRONMENT',
    ...paragraphs(ENVIRONMENT),
    ...entries(VARIABLES),
    '.SH FILES',
    ...entries(FILES),
    '.SH EXIT STATUS',
    ...entries(EXIT_CODES),
    '.SH EXAMPLES',
    ...EXAMPLES.flatMap(([words, example], index) => [
      ...(index > 0 ? ['.PP'] : []),
      roff(words),
      '.PP',
      '.RS 4',
      '.nf',
      roff(example),
      '.fi',
      '.RE',
    ]),
    '.SH SEE ALSO',
    '.BR mount.tmaxfs (8),',
    '.BR apptainer (1),',
    '.BR systemd.unit (5)',
  ];
  return `${lines.join('\n')}\n`;
}

function usageOf(command: Command): string {
  const args = command.registeredArguments.map((argument) => {
    return argument.required ? argument.name() : `[${argument.name()}]`;
  });
  return [...(command.options.length > 0 ? ['[options]'] : []), ...args].join(' ');
}

function commandSection(command: Command): string[] {
  const words = [`tmaxfs ${command.name()}`, usageOf(command)].filter(Boolean).join(' ');
  const args = command.registeredArguments.filter(({ description }) => description !== '');
  return [
    `.SS ${roff(words)}`,
    sentence(command.description()),
    ...args.flatMap((argument) => ['.TP', `.I ${roff(argument.name())}`, sentence(argument.description)]),
    ...command.options.filter(({ hidden }) => !hidden).flatMap(optionEntry),
  ];
}

function optionEntry(option: Option): string[] {
  const notes = [
    ...(option.argChoices === undefined ? [] : [`One of ${option.argChoices.join(', ')}.`]),
    ...defaultOf(option),
    ...(option.envVar === undefined ? [] : [`Variable: ${option.envVar}.`]),
  ];
  return ['.TP', `.B ${roff(option.flags)}`, sentence(option.description), ...notes.map(roff)];
}

function defaultOf({ defaultValue, defaultValueDescription }: Option): string[] {
  if (defaultValueDescription !== undefined) return [`Default: ${defaultValueDescription}.`];
  return defaultValue === undefined || typeof defaultValue === 'boolean' ? [] : [`Default: ${defaultValue}.`];
}

function paragraphs(text: string): string[] {
  return text
    .split('\n\n')
    .flatMap((paragraph, index) => [...(index > 0 ? ['.PP'] : []), roff(paragraph.replaceAll('\n', ' '))]);
}

function entries(pairs: readonly (readonly [string, string])[]): string[] {
  return pairs.flatMap(([term, words]) => ['.TP', `.B ${roff(term)}`, roff(words)]);
}

/** Descriptions begin small and end without a full stop. */
function sentence(text: string): string {
  return roff(`${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.)]$/.test(text) ? '' : '.'}`);
}

/** A backslash begins an escape, a plain hyphen may become another sign, and a point or quote at the beginning is a request. */
function roff(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll(/^([.'])/gm, '\\&$1');
}

const DESCRIPTION = `tmaxfs mounts a pool of Apptainer images as /<variant>/<task>.sif. Everything is listed at once; the first open of an
image fetches it from the Hub, proves it (size, sha256, SIF, squashfs), keeps it in a bounded cache on this disk, and only then shows a
byte of it. The mount is read-only.

Below pool/ lie all plain images by their own file names. What goes wrong with an image is in the log, in "tmaxfs status", and in the
extended attributes of its file.`;

const ENVIRONMENT = `Each option that configures a daemon has a twin in the environment, named with it above; an option wins over its
twin. Besides them, what the Hub's own client and other programs read:`;

const VARIABLES = [
  [
    'HF_TOKEN, HF_TOKEN_PATH, HF_HOME',
    'The token, or the file that holds it; the file is read anew whenever it changes.',
  ],
  ['HF_ENDPOINT', 'A Hub or mirror. The token goes to its scheme, host and port alone.'],
  ['HF_HUB_OFFLINE', 'As --offline.'],
  ['HTTPS_PROXY, HTTP_PROXY, NO_PROXY', 'The proxy, in lower case too, which wins.'],
  ['SSL_CERT_FILE', 'Authorities (PEM) in the place of the built-in ones.'],
] as const;

const FILES = [
  ['$XDG_CACHE_HOME/tmaxfs, ~/.cache/tmaxfs', 'The cache; of the service and of fstab /var/cache/tmaxfs.'],
  ['/etc/tmaxfs<mount point>.env', 'Variables of the service and of mounts in fstab.'],
  ['/var/log/tmaxfs/<escaped mount point>.log', 'The log of a daemon in the background that root has started.'],
] as const;

const EXIT_CODES = [
  ['0', 'Done.'],
  ['1', 'It failed, or not all of it was there.'],
  ['2', 'Wrong usage.'],
] as const;

const EXAMPLES = [
  [
    'Mount the pool, see whether every task can be opened, use one:',
    'tmaxfs mount /tmax\ntmaxfs coverage /tmax\napptainer exec /tmax/solvable/task_000008_e0c6244c.sif true',
  ],
  ['Have the images of a job on this disk before it begins:', 'tmaxfs prefetch /tmax --tasks tasks.txt'],
  ['Teach bash these commands:', 'source <(tmaxfs completion bash)'],
] as const;
