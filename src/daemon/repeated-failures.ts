/**
 * Failures that repeat are counted, not repeated: of each kind the first is logged, and after a while one line says how many more
 * there were, and what the latest was about. A dead network under a thousand opens is a few lines then, not a full disk.
 *
 * A kind is a level, an errno, a source and words, whatever the words are about: names, paths, digests and figures in them don't
 * count. What is remembered of each is small, and so is the number of kinds.
 */

/** How long the first of a kind stands for the others. */
const WINDOW_MS = 60_000;
/** At one time; where there are more, the oldest is told early. */
const MAX_KINDS = 100;
/** Of words that are compared or kept. */
const MAX_CHARACTERS = 300;

/** A line of the log, as pino writes it. */
export type WriteLine = (fields: object, words: string) => void;

/** What a line about a failure says. */
export interface Failure {
  readonly level: number;
  readonly errno: string;
  readonly source: string;
  readonly words: string;
  /** What led to it. */
  readonly reason: string;
}

interface Kind {
  readonly first: Failure;
  readonly write: WriteLine;
  readonly timer: NodeJS.Timeout;
  count: number;
  latest: string;
}

export class RepeatedFailures {
  readonly #windowMs: number;
  readonly #kinds = new Map<string, Kind>();

  constructor(windowMs = WINDOW_MS) {
    this.#windowMs = windowMs;
  }

  /** Whether this one is to be logged, as the first of its kind; else it is counted. `write`: by which it would be. */
  isFirst(failure: Failure, write: WriteLine): boolean {
    const { level, errno, source, words, reason } = failure;
    const key = [level, errno, source, withoutParticulars(words), withoutParticulars(reason)].join('\n');
    const known = this.#kinds.get(key);
    if (known !== undefined) {
      known.count += 1;
      known.latest = `${words}${reason === '' ? '' : `: ${reason}`}`.slice(0, MAX_CHARACTERS);
      return false;
    }
    for (const oldest of this.#kinds.keys()) {
      if (this.#kinds.size < MAX_KINDS) break;
      this.#end(oldest);
    }
    const timer = setTimeout(() => this.#end(key), this.#windowMs).unref();
    this.#kinds.set(key, { first: failure, write, timer, count: 0, latest: '' });
    return true;
  }

  /** Tells of all that were counted; from now on the next of each kind is a first one. */
  flush(): void {
    for (const key of [...this.#kinds.keys()]) this.#end(key);
  }

  #end(key: string): void {
    const kind = this.#kinds.get(key);
    if (kind === undefined) return;
    this.#kinds.delete(key);
    clearTimeout(kind.timer);
    const { first, write, count, latest } = kind;
    if (count === 0) return;
    const { errno, source, words } = first;
    const fields = { ...(errno === '' ? {} : { errno }), ...(source === '' ? {} : { source }), count, latest };
    const seconds = this.#windowMs / 1000;
    write(fields, `${count} more like this within ${seconds} s: ${words.slice(0, MAX_CHARACTERS)}`);
  }
}

/** Quoted words, addresses and paths, digests, and numbers stand for whatever they are. */
function withoutParticulars(words: string): string {
  return words
    .slice(0, MAX_CHARACTERS)
    .replace(/"[^"]*"/g, '""')
    .replace(/\bhttps?:[^\s,;)]+/gi, '/')
    .replace(/[^\s:;,()]*\/[^\s:;,()]*/g, '/')
    .replace(/\b[0-9a-f]{8,}\b/gi, '#')
    .replace(/\d+/g, '0');
}
