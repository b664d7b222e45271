/**
 * The proof of an image that is still being written, from front to back: its form as soon as its first and last bytes are
 * known, its data behind the writer. What is left to do once the last byte has come is little, so that proving costs an
 * open no time of its own where cores are free.
 *
 * Nothing that is found on the way counts before the digest of the whole is known to be the right one: the owner calls
 * `conclude` then, and `abandon` otherwise. The digest is that of the file, and says nothing of a tail that was shown ahead
 * of its turn: a source may have fetched those bytes once more. So the two are compared.
 */

import type { GrowingFile } from './image-file.js';
import { type DataBlocks, endOfBlocks, splitBlocks } from './squashfs/data-blocks.js';
import type { RefusedVerdict, Verdict } from './verdict.js';
import type { DataPlan, FormProof } from './verify.js';

/** Header, descriptors and, in any image of apptainer, the superblock with its options. */
const HEAD_BYTES = 64 * 1024;
/** Data on disk that is decompressed at a time: little is left when the last byte has come. */
const PART_BYTES = 8 << 20;

/** What is done in threads. Errors: EIO, EINTR. */
export interface ProofThreads {
  /** Undefined: more of the file is needed. */
  form(growing: GrowingFile): Promise<FormProof | undefined>;
  data(plan: DataPlan): Promise<RefusedVerdict | undefined>;
  /** Whether the file, by now whole, ends in these bytes. */
  endsIn(tail: SharedArrayBuffer): Promise<boolean>;
  /** Of the file as it then lies there, whole. */
  whole(): Promise<Verdict>;
  /** The last steps, once form and data have been proven. */
  last(form: Verdict, parts: readonly (RefusedVerdict | undefined)[]): Promise<Verdict>;
  /** Calls off what is under way of form and data. */
  stop(): void;
}

export class FollowingProof {
  readonly #sizeBytes: number;
  readonly #threads: ProofThreads;
  #writtenBytes = 0;
  #isAbandoned = false;
  #tail: SharedArrayBuffer | undefined;
  #form: Promise<FormProof | undefined> | undefined;
  #plan: DataPlan | undefined;
  /** Not yet begun, in the order in which they lie on disk. */
  #waiting: DataBlocks[] = [];
  readonly #parts: Promise<RefusedVerdict | undefined>[] = [];

  constructor(sizeBytes: number, threads: ProofThreads) {
    this.#sizeBytes = sizeBytes;
    this.#threads = threads;
  }

  /** The first `bytes` of the file can be read by now. */
  written(bytes: number): void {
    this.#writtenBytes = bytes;
    this.#advance();
  }

  /** The last bytes of the file, ahead of their turn. */
  tail(bytes: SharedArrayBuffer): void {
    this.#tail = bytes;
    this.#advance();
  }

  /** To be called once, with the file complete and its digest compared. Errors: EIO local disk; EINTR. */
  async conclude(): Promise<Verdict> {
    try {
      const form = await this.#formOfTheFile();
      if (form !== undefined) {
        this.written(this.#sizeBytes);
        return await this.#threads.last(form.verdict, await Promise.all(this.#parts));
      }
    } finally {
      // Also what one part that failed has left of the others.
      this.abandon();
    }
    return await this.#threads.whole();
  }

  /** Undefined where it was not proven, or of other bytes than those that are there now. Errors: EIO. */
  async #formOfTheFile(): Promise<FormProof | undefined> {
    // What went wrong on the way may have been for lack of what is there now.
    const form = await this.#form?.catch(() => undefined);
    if (form === undefined || this.#tail === undefined) return undefined;
    return (await this.#threads.endsIn(this.#tail)) ? form : undefined;
  }

  /** Ends what is under way: these bytes will not be used. */
  abandon(): void {
    this.#isAbandoned = true;
    this.#threads.stop();
  }

  #advance(): void {
    if (this.#isAbandoned) return;
    if (this.#form === undefined) {
      if (this.#tail === undefined || this.#writtenBytes < HEAD_BYTES) return;
      this.#form = this.#threads.form({ sizeBytes: this.#sizeBytes, tail: this.#tail });
      this.#form.then(
        (form) => this.#follow(form?.data),
        () => {},
      );
      return;
    }
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (this.#plan === undefined || endOfBlocks(next) > this.#writtenBytes) return;
      this.#waiting.shift();
      const part = this.#threads.data({ ...this.#plan, blocks: next });
      // `conclude` tells; until then nobody listens.
      part.catch(() => {});
      this.#parts.push(part);
    }
  }

  #follow(plan: DataPlan | undefined): void {
    if (plan === undefined) return;
    this.#plan = plan;
    this.#waiting = splitBlocks(plan.blocks, PART_BYTES);
    this.#advance();
  }
}
