/**
 * What a daemon runs with, from the command line's words and the environment. The one place that reads the environment,
 * besides the flags' own twins; every room below gets plain values.
 *
 * The `@huggingface/hub` library reads none of the variables that its users set, so they are honoured here.
 */

import { availableParallelism, homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { SERVED_ARCHITECTURES } from '../blobs/architecture-gate.js';
import { TmaxError } from '../errors.js';
import { VERIFY_LEVELS, type VerifyLevel } from '../verify/verdict.js';
import { type Amount, parseAmount, parseBytes, parseDurationMs, parsePeriodMs } from './amount.js';
import { realMountpoint } from './mountpoint.js';
import { named } from './named-word.js';
import { parsePath } from './path-word.js';
import { type PoolChoice, type PoolWords, readPools } from './pool-choices.js';
import {
  checkTemplates,
  type DestinationChoice,
  parseDestinations,
  parseSources,
  type SourceChoice,
  withDestinations,
} from './source-choices.js';

/** Options of `tmaxfs mount` as they were written, each with its default filled in by the command line. */
export interface MountWords extends PoolWords {
  readonly mountpoint: string;
  readonly cacheDir?: string | undefined;
  readonly sharedCache: boolean;
  readonly cacheSize: string;
  readonly reserveFree: string;
  readonly verify: string;
  readonly verifyThreads: string;
  readonly arch: string;
  readonly scrub: string;
  readonly openTimeout: string;
  readonly startTimeout?: string | undefined;
  readonly connections: string;
  readonly maxFetches: string;
  readonly connectTimeout: string;
  readonly firstByteTimeout?: string | undefined;
  readonly idleTimeout?: string | undefined;
  readonly minSpeed: string;
  readonly source?: readonly string[] | undefined;
  readonly publish?: readonly string[] | undefined;
  readonly publishReserve: string;
  readonly publishSize?: string | undefined;
  readonly follow?: string | undefined;
  readonly driver: string;
  readonly allowOther: boolean;
  readonly noexec: boolean;
  readonly uid?: string | undefined;
  readonly gid?: string | undefined;
  readonly offline: boolean;
  readonly metricsPort?: string | undefined;
  readonly controlGroup?: string | undefined;
  readonly logLevel: string;
}

export interface Settings {
  /** Absolute, free of symbolic links. */
  readonly mountpoint: string;
  /** At least one. */
  readonly pools: readonly PoolChoice[];
  readonly cacheDirectory: string;
  /** The group of that directory fills it, reads from it and evicts too. */
  readonly sharedCache: boolean;
  readonly cacheSize: Amount;
  readonly reserveFree: Amount;
  readonly verifyLevel: VerifyLevel;
  readonly verifyThreads: number;
  /** Images for other machines are served too, or not. */
  readonly architectures: (typeof SERVED_ARCHITECTURES)[number];
  /** Within what time every idle blob is hashed once; undefined: never. */
  readonly scrubPeriodMs: number | undefined;
  readonly openTimeoutMs: number;
  /** How long a start goes on asking a Hub that does not answer; undefined: once through the retries of a request. */
  readonly startTimeoutMs: number | undefined;
  /** That one blob may take. */
  readonly connections: number;
  /** Blobs fetched at one time. */
  readonly maxFetches: number;
  readonly connectTimeoutMs: number;
  readonly firstByteTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Of one connection; 0: none is too slow. */
  readonly minBytesPerSecond: number;
  /** Where images are fetched from, first asked first. */
  readonly sources: readonly SourceChoice[];
  /** Where what was fetched is written to, for other nodes. */
  readonly publish: readonly DestinationChoice[];
  /** What stays free there. */
  readonly publishReserve: Amount;
  /** Most that all images there may take; undefined: as much as the reserve leaves. */
  readonly publishSizeBytes: number | undefined;
  /** How often the revision is resolved anew; undefined: only when asked. */
  readonly followMs: number | undefined;
  readonly driver: Driver;
  readonly allowOther: boolean;
  /** Nothing on the mount can be executed directly. */
  readonly noExec: boolean;
  readonly uid: number;
  readonly gid: number;
  readonly offline: boolean;
  /** Of the loopback interface, 0 for any that is free; undefined: none. */
  readonly metricsPort: number | undefined;
  /** Name or number of the group that may give orders too. */
  readonly controlGroup: string | undefined;
  readonly logLevel: LogLevel;
  readonly endpoint: string;
  readonly token: TokenPlaces;
  readonly proxy: ProxySettings;
  /** Where "docker login" keeps who may ask registries. */
  readonly registryLogins: string;
  /** Bundle of certificates that are trusted besides Node's own. */
  readonly caFile: string | undefined;
}

/** Where a token may be found, first match first. */
export interface TokenPlaces {
  readonly value: string | undefined;
  readonly file: string | undefined;
}

export interface ProxySettings {
  readonly httpProxy?: string;
  readonly httpsProxy?: string;
  readonly noProxy?: string;
}

export const DRIVERS = ['auto', 'kernel', 'fuse-native'] as const;
export type Driver = (typeof DRIVERS)[number];

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const DEFAULT_ENDPOINT = 'https://huggingface.co';
const MAX_DEFAULT_THREADS = 4;
const MAX_THREADS = 256;
/** A busy resolver takes seconds, never half a minute. */
const DEFAULT_FIRST_BYTE = '30';
/** A body that stands still this long is asked for anew, from where it stopped. */
const DEFAULT_IDLE = '20';
/** More of them take each other's share, and memory. */
const MAX_CONNECTIONS = 64;
const MAX_FETCHES = 256;
const YES = new Set(['1', 'on', 'yes', 'true']);

type Environment = Readonly<Record<string, string | undefined>>;

/** Errors: EINVAL naming the option and what it takes. */
export function readSettings(words: MountWords, environment: Environment): Settings {
  const publish = parseDestinations(words.publish ?? []);
  const pools = readPools(words);
  const sources = withDestinations(parseSources(words.source ?? ['hub']), publish);
  checkTemplates(sources, new Set(pools.map(({ repository }) => repository)));
  return {
    mountpoint: realMountpoint(words.mountpoint),
    pools,
    cacheDirectory: chooseCacheDirectory(words.cacheDir, environment),
    sharedCache: words.sharedCache,
    cacheSize: named('--cache-size', parseAmount, words.cacheSize),
    reserveFree: named('--reserve-free', parseAmount, words.reserveFree),
    verifyLevel: oneOf(words.verify, VERIFY_LEVELS, '--verify'),
    verifyThreads: parseThreads(words.verifyThreads, '--verify-threads'),
    architectures: oneOf(words.arch, SERVED_ARCHITECTURES, '--arch'),
    scrubPeriodMs: words.scrub === 'off' ? undefined : named('--scrub', parsePeriodMs, words.scrub),
    openTimeoutMs: named('--open-timeout', parsePeriodMs, words.openTimeout),
    startTimeoutMs:
      words.startTimeout === undefined ? undefined : named('--start-timeout', parsePeriodMs, words.startTimeout),
    connections: parseCount(words.connections, '--connections', MAX_CONNECTIONS),
    maxFetches: parseCount(words.maxFetches, '--max-fetches', MAX_FETCHES),
    connectTimeoutMs: named('--connect-timeout', parseDurationMs, words.connectTimeout),
    firstByteTimeoutMs: deadlineMs(
      ['--first-byte-timeout', words.firstByteTimeout],
      environment,
      'HF_HUB_ETAG_TIMEOUT',
      DEFAULT_FIRST_BYTE,
    ),
    idleTimeoutMs: deadlineMs(
      ['--idle-timeout', words.idleTimeout],
      environment,
      'HF_HUB_DOWNLOAD_TIMEOUT',
      DEFAULT_IDLE,
    ),
    minBytesPerSecond: named('--min-speed', parseBytes, words.minSpeed),
    sources,
    publish,
    publishReserve: named('--publish-reserve', parseAmount, words.publishReserve),
    publishSizeBytes:
      words.publishSize === undefined ? undefined : named('--publish-size', parseBytes, words.publishSize),
    followMs:
      words.follow === undefined || words.follow === 'off' ? undefined : named('--follow', parsePeriodMs, words.follow),
    driver: oneOf(words.driver, DRIVERS, '--driver'),
    allowOther: words.allowOther,
    noExec: words.noexec,
    uid: userId(words.uid, '--uid') ?? process.getuid?.() ?? 0,
    gid: userId(words.gid, '--gid') ?? process.getgid?.() ?? 0,
    offline: words.offline || isYes(environment['HF_HUB_OFFLINE']),
    metricsPort: words.metricsPort === undefined ? undefined : parsePort(words.metricsPort, '--metrics-port'),
    controlGroup: controlGroup(words),
    logLevel: oneOf(words.logLevel, LOG_LEVELS, '--log-level'),
    endpoint: readEndpoint(environment),
    token: tokenPlaces(environment),
    proxy: proxySettings(environment),
    registryLogins: join(nonEmpty(environment['DOCKER_CONFIG']) ?? join(homeOf(environment), '.docker'), 'config.json'),
    caFile: nonEmpty(environment['SSL_CERT_FILE']),
  };
}

/** Threads that prove images, where nobody says otherwise: proving is short, and the machine is there for others. */
export function defaultThreads(): number {
  return Math.min(MAX_DEFAULT_THREADS, availableParallelism());
}

/** Errors: EINVAL. */
export function parseThreads(text: string, option: string): number {
  const threads = /^\d{1,3}$/.test(text) ? Number(text) : 0;
  if (threads >= 1 && threads <= MAX_THREADS) return threads;
  throw new TmaxError('EINVAL', `${option} takes a number from 1 to ${MAX_THREADS}, not "${text}"`, {
    source: 'settings',
  });
}

/** The folder named, or the user's own. Errors: EINVAL. */
export function chooseCacheDirectory(folder: string | undefined, environment: Environment): string {
  return folder === undefined ? defaultCacheDirectory(environment) : parsePath(folder, '--cache-dir');
}

/** Whether an environment variable says yes, as the Hub's own client reads them. */
export function isYes(value: string | undefined): boolean {
  return value !== undefined && YES.has(value.trim().toLowerCase());
}

/** `$XDG_CACHE_HOME/tmaxfs`; never below /tmp, which may be memory. */
function defaultCacheDirectory(environment: Environment): string {
  return resolve(nonEmpty(environment['XDG_CACHE_HOME']) ?? join(homeOf(environment), '.cache'), 'tmaxfs');
}

/** Errors: EINVAL. What is refused may hold a secret, and is not repeated. */
function readEndpoint(environment: Environment): string {
  const text = (nonEmpty(environment['HF_ENDPOINT']) ?? DEFAULT_ENDPOINT).replace(/\/+$/, '');
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['https:', 'http:'].includes(url.protocol)) {
    throw new TmaxError('EINVAL', 'HF_ENDPOINT is no http(s) address', { source: 'settings' });
  }
  if (url.username === '' && url.password === '' && url.search === '' && url.hash === '') return text;
  const message = 'HF_ENDPOINT holds more than an address: no user, password or query; a token belongs into HF_TOKEN';
  throw new TmaxError('EINVAL', message, { source: 'settings' });
}

function tokenPlaces(environment: Environment): TokenPlaces {
  const value = nonEmpty(environment['HF_TOKEN']) ?? nonEmpty(environment['HUGGING_FACE_HUB_TOKEN']);
  if (isYes(environment['HF_HUB_DISABLE_IMPLICIT_TOKEN'])) return { value, file: undefined };
  const home = nonEmpty(environment['HF_HOME']) ?? join(homeOf(environment), '.cache', 'huggingface');
  return { value, file: nonEmpty(environment['HF_TOKEN_PATH']) ?? join(home, 'token') };
}

/** Errors: EINVAL. */
function parseCount(text: string, option: string, most: number): number {
  const count = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (count >= 1 && count <= most) return count;
  throw new TmaxError('EINVAL', `${option} takes a number from 1 to ${most}, not "${text}"`, { source: 'settings' });
}

/** Errors: EINVAL. Others find the socket through the mount, so that they must be let in there. */
function controlGroup({ controlGroup: group, allowOther }: MountWords): string | undefined {
  if (group === undefined) return undefined;
  if (group.trim() === '')
    throw new TmaxError('EINVAL', '--control-group takes a group, not ""', { source: 'settings' });
  if (allowOther) return group.trim();
  const message = "--control-group needs --allow-other: a group that may not look at the mount can't give orders to it";
  throw new TmaxError('EINVAL', message, { source: 'settings' });
}

/** Errors: EINVAL. */
function parsePort(text: string, option: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (port < 2 ** 16) return port;
  const message = `${option} takes a port from 1 to 65535, or 0 for any that is free, not "${text}"`;
  throw new TmaxError('EINVAL', message, { source: 'settings' });
}

/** As the option says, else as the variable of the Hub's own client says, else the default. Errors: EINVAL. */
function deadlineMs(
  [option, word]: readonly [string, string | undefined],
  environment: Environment,
  variable: string,
  fallback: string,
): number {
  if (word !== undefined) return named(option, parseDurationMs, word);
  return named(variable, parseDurationMs, nonEmpty(environment[variable]) ?? fallback);
}

function proxySettings(environment: Environment): ProxySettings {
  const httpProxy = either(environment, 'HTTP_PROXY');
  const httpsProxy = either(environment, 'HTTPS_PROXY');
  const noProxy = either(environment, 'NO_PROXY');
  return {
    ...(httpProxy === undefined ? {} : { httpProxy }),
    ...(httpsProxy === undefined ? {} : { httpsProxy }),
    ...(noProxy === undefined ? {} : { noProxy }),
  };
}

/** Proxy variables are read in lower case first, as curl does. */
function either(environment: Environment, name: string): string | undefined {
  return nonEmpty(environment[name.toLowerCase()]) ?? nonEmpty(environment[name]);
}

function homeOf(environment: Environment): string {
  return nonEmpty(environment['HOME']) ?? homedir();
}

function nonEmpty(value: string | undefined): string | undefined {
  const trimmed = value?.trim();
  return trimmed === '' ? undefined : trimmed;
}

function oneOf<Choice extends string>(value: string, choices: readonly Choice[], option: string): Choice {
  const chosen = choices.find((choice) => choice === value);
  if (chosen !== undefined) return chosen;
  throw new TmaxError('EINVAL', `${option} takes one of ${choices.join(', ')}, not "${value}"`, { source: 'settings' });
}

function userId(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  const id = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (id < 2 ** 32 - 1) return id;
  throw new TmaxError('EINVAL', `${option} takes a number, not "${text}"`, { source: 'settings' });
}
