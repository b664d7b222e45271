/**
 * What the life of a blob asks of a place that bytes come from: the Hub, a mirror, a directory.
 *
 * A source moves bytes and survives the transport's faults; it is never trusted. What it brought is judged by `verify`.
 */

import type { Patience } from './patience.js';
import type { SourceHealth } from './source-health.js';

/** One image of a repository at one commit, as the listing states it. */
export interface BlobAddress {
  /** `owner/name` of the dataset repository. */
  readonly repository: string;
  /** 40 hex digits: what every request is pinned to. */
  readonly commit: string;
  /** Path in the repository, `/` between segments, not URL-encoded. */
  readonly path: string;
  /** 64 hex digits, from the listing. */
  readonly sha256: string;
  readonly sizeBytes: number;
}

export interface DownloadOptions {
  /** Ends the download; what is on disk by then stays for a resume. */
  readonly signal: AbortSignal;
  /** Default: patient. */
  readonly patience?: Patience;
  /**
   * Where a source may put a hard link to a file that it has, instead of bytes into the partial file; nothing is there yet. If left
   * out, it may not.
   */
  readonly linkPath?: string | undefined;
  /** Called as bytes arrive, with all that is on disk so far (resumed bytes included). */
  readonly onProgress?: ((receivedBytes: number) => void) | undefined;
  /**
   * Called at most once, with the last bytes of the blob ahead of their turn, where the source can bring them early: so the
   * blob's form can be proven while the rest still comes.
   */
  readonly onTail?: ((bytes: SharedArrayBuffer) => void) | undefined;
  /** Called where a request failed and another follows, with what was wrong. */
  readonly onRetry?: (reason: string) => void;
}

export interface Download {
  /** Length of the partial file. */
  readonly sizeBytes: number;
  /** Digest of the partial file's whole content, 64 hex digits, computed while the bytes passed. */
  readonly sha256: string;
  /** How many of the bytes were on disk before this download began. */
  readonly resumedBytes: number;
  /** Requests for bytes that it took, 1 if all went well. */
  readonly attempts: number;
  /** What is said of the partial file is true of what lies at `linkPath` instead. */
  readonly linked?: LinkedFile;
}

/** A file that is somebody's: what is known of it holds for as long as it has this time of change. */
export interface LinkedFile {
  readonly modifiedSeconds: number;
}

export interface Source {
  /** As it stands in logs, `status`, metrics and quarantine records: "hub", "dir:/path", "https://host/{path}". No secret. */
  readonly name: string;
  /** Kept by who asks it. */
  readonly health: SourceHealth;
  /** Whether it goes on trying for minutes where nothing comes, where it is asked with patience. */
  readonly perseveres?: boolean;
  /**
   * Brings the blob into the file at `partialPath`, created (mode 0600) if absent, resumed if it holds a prefix.
   * Returns once every byte has been written (not yet synced). Retries inside, with back-off, while that can help.
   * Errors: EHOSTUNREACH no answer, offline, retries used up, or it does not have the blob (`AbsentBlob`); EACCES 401 and 403; ENOENT the path is not there at
   * that commit; EBADMSG the source keeps sending something that can't be the blob (wrong length, HTML, …);
   * ENOSPC, EIO of the local disk; EINTR aborted.
   */
  download(blob: BlobAddress, partialPath: string, options: DownloadOptions): Promise<Download>;
  close(): Promise<void>;
}
