/** How a blob is refused: remembered in the quarantine, and told to every open that waits for it. */

import type { Logger } from 'pino';
import { messageOf, TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { Finding } from '../verify/verdict.js';
import type { Quarantine, QuarantineRecord, RefusalLevel } from './quarantine.js';

export interface Refusal {
  readonly cause: QuarantineRecord['cause'];
  readonly level: RefusalLevel;
  readonly finding: Pick<Finding, 'code' | 'message'>;
  /** Name of the source that the bytes came from. */
  readonly source: string;
}

/** What becomes of a refused image by itself, and what people can do. */
export const REMEDIES: Readonly<Record<QuarantineRecord['cause'], string>> = {
  image:
    'the published image is broken: tell its owner; it is not fetched again before the repository changes, or after "tmaxfs verify --retry"',
  transfer:
    'it is tried anew at the next open after half a minute; if it stays, look at the source, its caches and proxies',
  disk: 'files of it are open; it is fetched anew once they are closed, and until then tried every half minute',
};

/** Remembers the refusal and makes the error that every waiting open gets. */
export async function refuse(
  {
    quarantine,
    verifierVersion,
    log,
  }: { readonly quarantine: Quarantine; readonly verifierVersion: number; readonly log: Logger },
  { sha256, sizeBytes, repository, commit, path }: BlobAddress,
  { cause, level, finding, source }: Refusal,
): Promise<TmaxError> {
  const { code, message: reason } = finding;
  const refusedAt = new Date().toISOString();
  const blob = { sha256, sizeBytes, repository, commit, path };
  const record = { ...blob, cause, code, reason, level, verifierVersion, source, refusedAt };
  try {
    await quarantine.add(record);
  } catch (error) {
    log.error(
      { blob: sha256, reason: messageOf(error) },
      'the reason of a refused blob could not be written to the cache directory',
    );
  }
  return refusalError(record);
}

/** The error of an open of a refused blob, the same whether it was refused just now or before. */
export function refusalError({ path, source, code, reason, cause }: QuarantineRecord): TmaxError {
  const words = `${path} from ${source} refused (${code}): ${reason}; ${REMEDIES[cause]}`;
  return new TmaxError('EBADMSG', words, { source });
}

/** The error of whoever waited when it was stopped. */
export function interrupted(address: BlobAddress): TmaxError {
  return new TmaxError('EINTR', `waiting for ${address.path} was interrupted`, { source: 'cache', level: 'debug' });
}
