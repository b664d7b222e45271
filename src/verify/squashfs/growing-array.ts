/** A typed array that grows as values arrive, so that memory follows what a file holds and not what it claims. */

type Numbers = Uint16Array | Uint32Array | Float64Array;
const FIRST_CAPACITY = 256;

export class GrowingArray<T extends Numbers> {
  readonly #type: new (
    length: number,
  ) => T;
  #values: T;
  #length = 0;

  constructor(type: new (length: number) => T) {
    this.#type = type;
    this.#values = new type(FIRST_CAPACITY);
  }

  get length(): number {
    return this.#length;
  }

  push(value: number): void {
    if (this.#length === this.#values.length) {
      const larger = new this.#type(this.#length * 2);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#length] = value;
    this.#length += 1;
  }

  /** The value at an index below `length`. */
  at(index: number): number {
    return this.#values[index] ?? 0;
  }

  set(index: number, value: number): void {
    this.#values[index] = value;
  }
}
