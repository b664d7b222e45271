/** The places that --source and --publish name. */

import { TmaxError } from '../errors.js';
import { parseRegistry, type Registry } from '../sources/registry.js';
import { parseUrlTemplate } from '../sources/url-template.js';
import { named } from './named-word.js';
import { parsePath } from './path-word.js';

/** `folder`: absolute; `template`: see `parseUrlTemplate`; its query may hold a secret. */
export type SourceChoice =
  | { readonly kind: 'hub' }
  | { readonly kind: 'directory'; readonly folder: string }
  | { readonly kind: 'template'; readonly template: string }
  | { readonly kind: 'registry'; readonly registry: Registry }
  /** `proxy`: `http://host:port`; without a template the Hub's own URLs are fetched through it. */
  | { readonly kind: 'dragonfly'; readonly proxy: string; readonly template: string | undefined };

/** Those sources that can be written to, too. */
export type DestinationChoice = Extract<SourceChoice, { readonly kind: 'directory' | 'registry' }>;

/** Each has threads and metrics of its own. */
const MAX_SOURCES = 16;
/** Each gets everything that is fetched. */
const MAX_DESTINATIONS = 4;
const REGISTRY = /^oci(\+http)?:/;

/** "hub", "dir:/path" and URL templates, each once. Errors: EINVAL; what may hold a password is not repeated. */
export function parseSources(words: readonly string[]): readonly SourceChoice[] {
  if (words.length > MAX_SOURCES) {
    throw new TmaxError('EINVAL', `--source names more than ${MAX_SOURCES} places`, { source: 'settings' });
  }
  const choices = words.map((word, index) => parseSource(word, placeAmong(words, index, '--source')));
  const names = choices.map(sourceName);
  if (new Set(names).size === choices.length) return choices;
  throw new TmaxError('EINVAL', `--source names one twice: ${names.join(', ')}`, { source: 'settings' });
}

/** Which one of them an error is about: its text may hold what is not to be repeated. */
function placeAmong(words: readonly string[], index: number, option: string): string {
  return words.length === 1 ? option : `${option} (${index + 1} of ${words.length})`;
}

function parseSource(word: string, option: string): SourceChoice {
  if (word === 'hub') return { kind: 'hub' };
  const [, folder] = /^dir:(.+)$/.exec(word) ?? [];
  if (folder !== undefined) return { kind: 'directory', folder: parsePath(folder, `${option} dir:`) };
  if (REGISTRY.test(word)) return { kind: 'registry', registry: named(option, parseRegistry, word) };
  if (/^https?:/i.test(word)) {
    named(option, parseUrlTemplate, word);
    return { kind: 'template', template: word };
  }
  const [, address, template] = /^dragonfly:\/\/([^/@?#{}]+)(?:\/(https?:.+)?)?$/i.exec(word) ?? [];
  if (address !== undefined && URL.canParse(`http://${address}`)) {
    if (template !== undefined) named(option, parseUrlTemplate, template);
    return { kind: 'dragonfly', proxy: `http://${address}`, template };
  }
  const shown = word.includes('@') ? 'this' : `"${word}"`;
  const message = `${option} takes "hub", "dir:/path", "oci://host/name", an http(s) URL with {sha256} or {path} in it, or "dragonfly://host:port", not ${shown}`;
  throw new TmaxError('EINVAL', message, { source: 'settings' });
}

/**
 * Errors: EINVAL a URL template by which images of several repositories would lie at one URL where they have one path. Their bytes are
 * proven anyway, but each such fetch would be in vain, and the source left alone for lying.
 */
export function checkTemplates(sources: readonly SourceChoice[], repositories: ReadonlySet<string>): void {
  if (repositories.size < 2) return;
  for (const choice of sources) {
    const { template = undefined } = choice.kind === 'template' || choice.kind === 'dragonfly' ? choice : {};
    if (template === undefined || parseUrlTemplate(template).separatesRepositories) continue;
    const message = `--source "${sourceName(choice)}" needs {repo} beside {path}, as in .../{repo}/{path}, or {sha256}: ${[...repositories].join(' and ')} may have different images of one path`;
    throw new TmaxError('EINVAL', message, { source: 'settings' });
  }
}

/** As it may be shown to anyone; see `Source.name`. */
export function sourceName(choice: SourceChoice): string {
  switch (choice.kind) {
    case 'hub':
      return 'hub';
    case 'directory':
      return `dir:${choice.folder}`;
    case 'template':
      return parseUrlTemplate(choice.template).shown;
    case 'registry':
      return choice.registry.shown;
    case 'dragonfly': {
      const { proxy, template } = choice;
      const behind = template === undefined ? '' : `/${parseUrlTemplate(template).shown}`;
      return `${proxy.replace('http:', 'dragonfly:')}${behind}`;
    }
  }
}

/** Each once. Errors: EINVAL. */
export function parseDestinations(words: readonly string[]): readonly DestinationChoice[] {
  if (words.length > MAX_DESTINATIONS) {
    throw new TmaxError('EINVAL', `--publish names more than ${MAX_DESTINATIONS} places`, { source: 'settings' });
  }
  const choices = words.map((word, index) => parseDestination(word, placeAmong(words, index, '--publish')));
  if (new Set(choices.map(sourceName)).size === choices.length) return choices;
  throw new TmaxError('EINVAL', `--publish names one twice: ${words.join(', ')}`, { source: 'settings' });
}

/** Errors: EINVAL. */
export function parseDestination(word: string, option: string): DestinationChoice {
  const [, folder] = /^dir:(.+)$/.exec(word) ?? [];
  if (folder !== undefined) return { kind: 'directory', folder: parsePath(folder, `${option} dir:`) };
  if (REGISTRY.test(word)) return { kind: 'registry', registry: named(option, parseRegistry, word) };
  const shown = word.includes('@') ? 'this' : `"${word}"`;
  throw new TmaxError('EINVAL', `${option} takes "dir:/path" or "oci://host/name", not ${shown}`, {
    source: 'settings',
  });
}

/** What is published somewhere is looked for there first, unless it has a place in the order of its own. */
export function withDestinations(
  sources: readonly SourceChoice[],
  destinations: readonly DestinationChoice[],
): readonly SourceChoice[] {
  const named = new Set(sources.map(sourceName));
  return [...destinations.filter((destination) => !named.has(sourceName(destination))), ...sources];
}
