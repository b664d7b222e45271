/** Every bound of the room in one place, with its unit and its reason. */

/** How persistent a client is. Plain data, so that it can be handed to a thread. */
export interface RetrySettings {
  /** Upper end of the first random wait; it doubles with each attempt. */
  readonly baseMs: number;
  /** Upper end of every later one. */
  readonly maxMs: number;
  /** Failed attempts in a row, without one new byte between them, after which the last failure is the answer. */
  readonly maxAttemptsWithoutProgress: number;
  /** Failed attempts in all, however much has come between them; default: any number. */
  readonly maxFailures?: number;
  /** From the first attempt to the last, pauses included. */
  readonly totalBudgetMs: number;
  /** Longest pause that a server may ask for; what it asks beyond that is not waited for. */
  readonly maxPauseMs: number;
}

/** The Hub counts per fixed window of 300 s: a pause may last one window and the second that is added to it. */
const MAX_PAUSE_MS = 310_000;

/**
 * Transfers: about two minutes of a dead network are sat out (a quick error costs a training run its retry budget), and
 * the whole of it may last two hours (the largest image, 3.4 GB, at 0.5 MB/s).
 */
export const TRANSFER_RETRY: RetrySettings = {
  baseMs: 1000,
  maxMs: 8000,
  maxAttemptsWithoutProgress: 30,
  totalBudgetMs: 2 * 3_600_000,
  maxPauseMs: MAX_PAUSE_MS,
};

/**
 * Transfers from a source after which another can be asked: one more attempt, for a connection that happened to be closed. A
 * server that stops again and again is given up although each attempt brings some bytes: what has come stays.
 */
export const BRIEF_RETRY: RetrySettings = {
  baseMs: 250,
  maxMs: 1000,
  maxAttemptsWithoutProgress: 2,
  maxFailures: 4,
  totalBudgetMs: 2 * 3_600_000,
  maxPauseMs: 2000,
};

/** Its deadlines, where those of the settings are longer: for a connection, the first byte, and silence within a body. */
export const BRIEF_CONNECT_MS = 3000;
export const BRIEF_HEADERS_MS = 15_000;
export const BRIEF_IDLE_MS = 10_000;

/** Fetches in a row that came to nothing, after which a source is left alone. */
export const FAILURES_TO_LEAVE_ALONE = 3;

/** For so long at first, twice as long each time that the next fetch fails too, up to a minute. */
export const FIRST_LEAVE_MS = 5000;
export const MAX_LEAVE_MS = 60_000;

/** Listings and revisions: someone waits for `mount` to say what is wrong, so half a minute, unless the Hub asks for more. */
export const METADATA_RETRY: RetrySettings = {
  baseMs: 1000,
  maxMs: 8000,
  maxAttemptsWithoutProgress: 7,
  totalBudgetMs: 2 * MAX_PAUSE_MS,
  maxPauseMs: MAX_PAUSE_MS,
};

/** Fresh URLs in a row that the storage refuses: each costs a hit of the resolver, and the reason is not the URL's age. */
export const MAX_REFUSED_URLS = 5;

/**
 * Answers in a row, without progress, that can't be the blob (a web page, another length, another range). Unlike silence
 * they seldom heal within minutes, and whoever waits is told sooner: after about ten seconds.
 */
export const MAX_WRONG_ANSWERS = 6;

/** A chain of redirects longer than this is a loop; the Hub needs two. */
export const MAX_REDIRECTS = 5;

/** The rest of an answer nobody wants is read up to here, to keep its connection; beyond, the connection is dropped. */
export const MAX_DISCARDED_BYTES = 64 * 1024;

/** A stalled range is asked for a second time after this share of the idle timeout; whoever brings bytes first goes on. */
export const RACE_AFTER_IDLE_SHARE = 0.25;

/**
 * Requests in a row, over all fetches, that end without an answer: then the server counts as down, and only one request
 * in each `PROBE_INTERVAL_MS` is sent to it, until one is answered.
 */
export const FAILURES_TO_OPEN_CIRCUIT = 12;
export const PROBE_INTERVAL_MS = 1000;

/** Of `/api/datasets/.../revision`, whose answer holds a few fields. */
export const MAX_INFO_BYTES = 1024 * 1024;

/** Of one page of a listing: 1,000 entries take about 270 kB. */
export const MAX_PAGE_BYTES = 16 * 1024 * 1024;

/** Pages of a listing, 1,000 entries each: sixty times the pool of today. A chain of `next` links that goes on is a loop. */
export const MAX_LISTING_PAGES = 1000;

/** Entries of a listing, whatever the size of its pages. */
export const MAX_LISTING_ENTRIES = 1_000_000;

/** Text that a server sends with an error, as far as it is repeated in a message. */
export const MAX_QUOTED_CHARACTERS = 200;

/** A family of addresses that does not answer is given up for the other after this long (RFC 8305 suggests 250 ms). */
export const FAMILY_ATTEMPT_MS = 250;

/** A partial file is read back, for its digest, in pieces of this size. */
export const READ_BACK_BYTES = 1024 * 1024;

/** Bytes received and not yet written, per blob: beyond, its connections are held back until the disk has caught up. */
export const MAX_UNWRITTEN_BYTES = 2 * 1024 * 1024;

/** And in so many chunks: each of them takes memory of its own, however small it is. */
export const MAX_UNWRITTEN_CHUNKS = 8192;

/**
 * A blob that comes over several connections comes in pieces of this size. One piece per connection is held in memory
 * at most, until those before it are complete: large enough to hide a round trip, small enough to be held.
 */
export const PIECE_BYTES = 4 * 1024 * 1024;

/**
 * A blob's last bytes come first, so that its form can be proven while the rest still comes: such a share of it, in which the
 * tables of an image lie several times over, and one piece at most, since it waits in memory for its turn.
 */
export const TAIL_SHARE = 1 / 128;

/** The form of a blob of fewer pieces is proven in no time once all is there. */
export const MIN_PIECES_FOR_EARLY_TAIL = 2;

/** Threads that fetch: one takes in and hashes about 500 MiB/s, and a machine has other things to do. */
export const MAX_FETCH_THREADS = 4;

/** Threads that copy out of a directory: two keep a local disk busy, and one of the network answers late. */
export const MAX_COPY_THREADS = 4;

/** Threads without a transfer for so long are ended: each holds some 25 MB. */
export const IDLE_THREADS_MS = 30_000;

/** A thread reports the progress of a transfer this often at most. */
export const PROGRESS_INTERVAL_MS = 100;

/**
 * Connections that one blob may take, if nothing else is said: one connection to the storage rarely fills a link, and
 * an open waits for a single blob. Smaller blobs take fewer, by the pieces they have.
 */
export const CONNECTIONS_PER_BLOB = 4;

/**
 * Connections that all blobs together should take: many blobs fill a link by one connection each. A connection holds up
 * to `PIECE_BYTES` in memory, so this bounds memory too.
 */
export const MAX_CONNECTIONS_IN_ALL = 8;
