/**
 * Where the bytes of one blob are, and how they are asked for there: what tells one kind of HTTP source from another. All else
 * of a transfer (ranges, resume, deadlines, races, retries, the digest) is the same for all kinds, in `blob-transfer.ts`.
 *
 * How another kind plugs in (a registry, say): its `BlobLocation` in a file of its own; a member of `LocatorSettings`, plain data
 * that goes to the fetch threads, and its line in `createLocator` (both in `locator.ts`); and whoever opens it makes a
 * `RemoteSource` with those settings. What it needs:
 *
 * - A question before the bytes (where are they?) goes into `url`, once for all requests of the transfer.
 * - Credentials go into `get`, as `headersFor` of `SourceHttp.get`: asked for every hop of a redirect, so that they stay on their
 *   host. The secret of the moment comes by `LocatorTools.secret`, from the main thread; what was made of it (a token for many
 *   blobs) belongs into the locator, which lives as long as its thread.
 * - A status that says "those credentials, or that URL, are used up" is answered by `refusal` with a `TransientFailure` with
 *   `staleUrl: true`, after what was stale has been forgotten: the next attempt follows at once, at most `MAX_REFUSED_URLS` in a row.
 * - A source that answers and does not have the blob throws an `AbsentBlob`.
 */

import type { TmaxError } from '../errors.js';
import type { BodySink, HttpReply } from './http-client.js';
import type { SourceAnswer } from './source-http.js';

/** A request for some bytes. */
export interface BytesRequest {
  readonly url: URL;
  /** The `Range` header. */
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  /** Called when the request is sent, after whatever pause the server has asked for. */
  readonly onSend: () => void;
  /** Called for the answer that ends a chain of redirects; see `HttpRequest`. */
  readonly onReply: (reply: HttpReply) => BodySink | undefined;
}

export interface BlobLocation {
  /** Where requests for bytes go now; all who ask at one time share the answer. Errors: final ones, `TransientFailure`s, EINTR. */
  url(signal: AbortSignal): Promise<URL>;
  /** Errors: as `SourceHttp.get`. */
  get(request: BytesRequest): Promise<SourceAnswer>;
  /** What an answer that is neither 200 nor 206 means; `asked`: the URL of the request. */
  refusal(reply: HttpReply, asked: URL): Promise<TmaxError>;
}
