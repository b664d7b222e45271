/** Rows of a data set, and what is to become of each. */

/** The steps of a column's name: "env_config.image" is ["env_config", "image"]. */
export type ColumnPath = readonly string[];

/** What a row's column is to hold, or why that is not known. */
export type Decision = { readonly image: string } | { readonly reason: string };

/** Looks at a row (an object, from JSON or Parquet) and at what its column holds now (undefined where that is not there). */
export type Decide = (row: unknown, current: string | undefined) => Promise<Decision>;

export interface UnresolvedRow {
  /** Counted from 1; of JSON lines, the line. */
  readonly number: number;
  /** What its column holds, cut; null where that is nothing. */
  readonly value: string | null;
  readonly reason: string;
}

export interface RewriteResult {
  readonly rows: number;
  readonly unresolvedCount: number;
  /** The first of them. */
  readonly unresolved: readonly UnresolvedRow[];
}

const MAX_LISTED = 1000;
const MAX_SHOWN_CHARACTERS = 200;

export function parseColumn(text: string): ColumnPath {
  return text.split('.');
}

/** The text at a path of nested objects, or at a key that is the whole name; numbers as text. Undefined where there is none. */
export function textAt(row: unknown, path: ColumnPath): string | undefined {
  const value = valueAt(row, path) ?? valueAt(row, [path.join('.')]);
  if (typeof value === 'string') return value;
  return typeof value === 'number' || typeof value === 'bigint' ? String(value) : undefined;
}

function valueAt(row: unknown, path: ColumnPath): unknown {
  let value: unknown = row;
  for (const step of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<string, unknown>)[step];
  }
  return value;
}

/** Counts rows, and remembers those that could not be resolved, as many as anybody reads. */
export class RowCount {
  #rows = 0;
  #unresolvedCount = 0;
  readonly #unresolved: UnresolvedRow[] = [];

  resolved(): void {
    this.#rows += 1;
  }

  unresolved(number: number, value: string | undefined, reason: string): void {
    this.#rows += 1;
    this.#unresolvedCount += 1;
    if (this.#unresolved.length >= MAX_LISTED) return;
    this.#unresolved.push({ number, value: value?.slice(0, MAX_SHOWN_CHARACTERS) ?? null, reason });
  }

  /** Of the row that comes next. */
  get nextNumber(): number {
    return this.#rows + 1;
  }

  get isComplete(): boolean {
    return this.#unresolvedCount === 0;
  }

  result(): RewriteResult {
    return { rows: this.#rows, unresolvedCount: this.#unresolvedCount, unresolved: this.#unresolved };
  }
}
