/**
 * The bytes of a blob, of the length and with the digest that the listing states, from the first source that has them.
 *
 * A wrong digest may be one broken transfer, or a source (a cache on the way to it) that will always answer so. Hence the
 * order: each source in turn, and only when all have been asked once more those whose bytes were wrong. A source that
 * fails by itself (no answer, refused, the same nonsense again and again) is not asked twice.
 *
 * The last in the order is asked with all patience. Those before it are to be brief, and are passed over while they are left alone
 * (`SourceHealth`), or tried by one fetch alone, so that an engine that is dead costs opens little. Where the last is none that perseveres (a directory), the
 * last that does is asked once more, with patience, before the open fails.
 */

import type { Logger } from 'pino';
import { TmaxError, toTmaxError } from '../errors.js';
import { AbsentBlob } from '../sources/failure.js';
import type { Patience } from '../sources/patience.js';
import type { BlobAddress, Download, DownloadOptions, Source } from '../sources/source.js';
import type { Finding, VerifyLevel } from '../verify/verdict.js';
import type { LockedPartial } from './partial-files.js';
import type { Quarantine, RefusalLevel } from './quarantine.js';
import { type Refusal, refuse } from './refusal.js';
import type { Following, FollowingProver } from './stored-blob-check.js';

/** How often a source may bring wrong bytes. */
const MAX_ROUNDS = 2;

export interface DownloadEnvironment {
  /** In the order in which they are asked. */
  readonly sources: readonly Source[];
  readonly quarantine: Quarantine;
  readonly prover: FollowingProver;
  readonly level: VerifyLevel;
  readonly verifierVersion: number;
  readonly log: Logger;
}

export interface ProvenDownload {
  readonly source: Source;
  readonly download: Download;
  readonly proof: Following;
}

/** What became of asking one source. */
type Answer =
  | { readonly kind: 'right'; readonly download: Download }
  | { readonly kind: 'wrong'; readonly refusal: Refusal; readonly maySucceed: boolean; readonly isItsFault: boolean }
  | { readonly kind: 'failed'; readonly error: TmaxError };

export interface DownloadWatch {
  readonly onSource: (name: string) => void;
  readonly onProgress: (receivedBytes: number) => void;
  readonly onRetry: (reason: string) => void;
  readonly signal: AbortSignal;
}

/**
 * Fills the partial file. The proof of what it holds is under way at the end, and for the caller to conclude. `onSource` is
 * told whom is asked, `onProgress` how many bytes are on disk, `onRetry` why another request follows.
 * Errors: EBADMSG wrong bytes from whoever had any (and quarantined); EHOSTUNREACH offline; those of `Source.download`.
 */
export async function downloadProven(
  environment: DownloadEnvironment,
  partial: LockedPartial,
  address: BlobAddress,
  watch: DownloadWatch,
): Promise<ProvenDownload> {
  let wrong: Refusal | undefined;
  const failures = new Map<Source, TmaxError>();
  const perseverer = environment.sources.findLast(({ perseveres }) => perseveres);
  let sources = environment.sources;
  for (let round = 1; round <= MAX_ROUNDS && sources.length > 0; round += 1) {
    const again: Source[] = [];
    for (const [index, source] of sources.entries()) {
      const mayBeSkipped = round === 1 && index < sources.length - 1;
      const mayBeAskedAgain = mayBeSkipped && source === perseverer;
      const patience = mayBeSkipped ? source.health.admits() : 'patient';
      if (patience === undefined) {
        failures.set(source, leftAlone(source));
        if (mayBeAskedAgain) again.push(source);
        continue;
      }
      watch.onSource(source.name);
      const { answer, proof } = await askFollowed(environment, source, patience, partial, address, watch);
      if (answer.kind === 'right') return { source, download: answer.download, proof };
      if (answer.kind === 'failed') {
        // The disk of the cache is full whoever is asked.
        if (answer.error.errno === 'ENOSPC') throw answer.error;
        failures.set(source, answer.error);
        if (mayBeAskedAgain && isSilence(answer.error)) again.push(source);
        continue;
      }
      await partial.handle.truncate(0);
      watch.onProgress(0);
      const { finding } = answer.refusal;
      watch.onRetry(finding.message);
      environment.log.warn(
        { blob: address.sha256, path: address.path, source: source.name, round, ...finding },
        `fetch: ${finding.message}`,
      );
      wrong = answer.refusal;
      if (answer.maySucceed) again.push(source);
    }
    sources = again;
  }
  // Wrong bytes say more than no answer.
  if (wrong !== undefined) throw await refuse(environment, address, besides(wrong, [...failures.values()]));
  throw noneHasIt([...failures.values()]) ?? offline(address);
}

/** Why the other sources were of no help belongs to it: as a rule that is what can be mended. */
function besides(refusal: Refusal, failures: readonly TmaxError[]): Refusal {
  if (failures.length === 0) return refusal;
  const { finding } = refusal;
  return { ...refusal, finding: { ...finding, message: `${finding.message}; elsewhere: ${wordsOf(failures)}` } };
}

/** What becomes of a source's health by its answer, told to the log where that changes how it is treated. */
function noteHealth({ health, name }: Source, answer: Answer, patience: Patience, log: Logger): void {
  const wasLeftAlone = health.report().isLeftAlone;
  if (answer.kind === 'wrong') {
    if (answer.isItsFault) health.lied(answer.refusal.finding.message, patience);
  } else if (answer.kind === 'right') health.brought();
  else if (isRefusal(answer.error)) health.refused();
  else health.failed(answer.error.message, patience);
  const { isLeftAlone, leftAloneMs, lastFailure } = health.report();
  if (isLeftAlone && !wasLeftAlone) {
    const seconds = Math.ceil(leftAloneMs / 1000);
    log.warn(
      { source: name, seconds, reason: lastFailure?.message },
      `${name} keeps failing: it is left alone for a while`,
    );
  } else if (wasLeftAlone && !isLeftAlone) log.info({ source: name }, `${name} answers again`);
}

/** It has answered: it does not have the blob, or does not give it away. */
function isRefusal(error: TmaxError): boolean {
  return error instanceof AbsentBlob || error.errno === 'ENOENT' || error.errno === 'EACCES';
}

/** Nothing came, and something might another time: no word on whether it has the blob, or may give it. */
function isSilence(error: TmaxError): boolean {
  return error.errno === 'EHOSTUNREACH' && !(error instanceof AbsentBlob);
}

function leftAlone({ name, health }: Source): TmaxError {
  const { leftAloneMs, failuresInARow, lastFailure } = health.report();
  const isTried = leftAloneMs === 0;
  const what = isTried
    ? 'is being tried by another fetch'
    : `is left alone for ${Math.ceil(leftAloneMs / 1000)} s more`;
  const message = `${name} ${what} after ${failuresInARow} failures, the last: ${lastFailure?.message}`;
  return new TmaxError('EHOSTUNREACH', message, { source: name });
}

/** One error out of all: that of who said more than that there was no answer, with the words of each. */
function noneHasIt(failures: readonly TmaxError[]): TmaxError | undefined {
  const told = failures.findLast(({ errno }) => errno !== 'EHOSTUNREACH') ?? failures.at(-1);
  if (told === undefined || failures.length === 1) return told;
  const { errno, level, source = 'cache' } = told;
  return new TmaxError(errno, wordsOf(failures), { cause: told, level, source });
}

function wordsOf(failures: readonly TmaxError[]): string {
  return failures.map(({ message }) => message).join('; ');
}

/** One source's answer, held for or against it. The proof goes on only where the bytes are right. */
async function askFollowed(
  { prover, level, log }: DownloadEnvironment,
  source: Source,
  patience: Patience,
  partial: LockedPartial,
  address: BlobAddress,
  { signal, onProgress, onRetry }: DownloadWatch,
): Promise<{ readonly answer: Answer; readonly proof: Following }> {
  const proof = prover.follow(partial.path, address, level, { signal });
  let isFollowed = false;
  try {
    const answer = await ask(source, partial, address, {
      signal,
      patience,
      linkPath: partial.linkPath,
      onRetry,
      onTail: (bytes) => proof.tail(bytes),
      onProgress: (receivedBytes) => {
        onProgress(receivedBytes);
        proof.written(receivedBytes);
      },
    });
    noteHealth(source, answer, patience, log);
    const linked = answer.kind === 'right' && answer.download.linked !== undefined ? partial.linkPath : undefined;
    // Nothing was written that could be followed.
    if (linked !== undefined) return { answer, proof: prover.follow(linked, address, level, { signal }) };
    isFollowed = answer.kind === 'right';
    return { answer, proof };
  } finally {
    if (patience === 'trial') source.health.trialEnds();
    if (!isFollowed) proof.abandon();
  }
}

async function ask(
  source: Source,
  partial: LockedPartial,
  address: BlobAddress,
  options: DownloadOptions,
): Promise<Answer> {
  let download: Download;
  try {
    download = await source.download(address, partial.path, options);
  } catch (thrown) {
    const error = toTmaxError(thrown, source.name);
    // No other source could write to this disk either.
    if (error.errno === 'EINTR' || error.source === 'cache') throw error;
    if (error.errno !== 'EBADMSG') return { kind: 'failed', error };
    return wrongAnswer(source, 'size', { code: 'transfer', message: error.message }, { maySucceed: false });
  }
  const { sizeBytes, sha256 } = address;
  // A prefix that was there already may be another's.
  const isItsFault = download.resumedBytes === 0;
  if (download.sizeBytes !== sizeBytes) {
    const message = `${download.sizeBytes} bytes arrived where the listing says ${sizeBytes}`;
    return wrongAnswer(source, 'size', { code: 'size-mismatch', message }, { isItsFault });
  }
  if (download.sha256 !== sha256) {
    const message = `what arrived has the sha256 ${download.sha256}, the listing says ${sha256}`;
    return wrongAnswer(source, 'sha256', { code: 'sha256-mismatch', message }, { isItsFault });
  }
  return { kind: 'right', download };
}

function wrongAnswer(
  source: Source,
  level: RefusalLevel,
  finding: Finding,
  { maySucceed = true, isItsFault = true }: { readonly maySucceed?: boolean; readonly isItsFault?: boolean },
): Answer {
  return { kind: 'wrong', refusal: { cause: 'transfer', level, finding, source: source.name }, maySucceed, isItsFault };
}

function offline(address: BlobAddress): TmaxError {
  return new TmaxError('EHOSTUNREACH', `${address.path} is not on this disk, and the daemon is offline`, {
    source: 'offline',
  });
}
