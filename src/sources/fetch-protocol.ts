/**
 * What the main thread and the fetch threads say to each other. A transfer has a port of its own; its outcome is the
 * result of the task. Plain data only.
 */

import type { MessagePort } from 'node:worker_threads';
import type { RetryNote } from './blob-transfer.js';
import type { LocatorSettings } from './locator.js';
import type { Patience, PatienceSettings } from './patience.js';
import type { PlainError } from './plain-error.js';
import type { BlobAddress, Download } from './source.js';

/** What a thread is started with. */
export interface FetchThreadData {
  /** Of the source, for its errors. */
  readonly name: string;
  readonly locator: LocatorSettings;
  readonly patience: Readonly<Record<Patience, PatienceSettings>>;
  /** Of the `RateGovernor`: a pause in one thread is a pause in all. */
  readonly governorMemory: SharedArrayBuffer;
}

export interface FetchJob {
  readonly blob: BlobAddress;
  readonly partialPath: string;
  /** Requests for bytes at one time. */
  readonly connections: number;
  readonly patience: Patience;
  /** Whether the last bytes are to come first. */
  readonly wantsTail: boolean;
  readonly port: MessagePort;
}

export type ToThread =
  | { readonly type: 'abort' }
  /** In answer to `secret-wanted`, one for one. */
  | { readonly type: 'secret'; readonly secret: string | undefined }
  | { readonly type: 'no-secret'; readonly error: PlainError };

export type ToMain =
  | { readonly type: 'progress'; readonly receivedBytes: number }
  | { readonly type: 'tail'; readonly bytes: SharedArrayBuffer }
  | { readonly type: 'retry'; readonly note: RetryNote }
  | { readonly type: 'secret-wanted' };

export type FetchOutcome = { readonly download: Download } | { readonly error: PlainError };
