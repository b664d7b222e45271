/** What is done about images whose programs are built for another machine than this one: sound they may be, but not run here. */

import type { Logger } from 'pino';
import { TmaxError } from '../errors.js';
import type { Proof } from './proof.js';

/** `any`: every image is served, with a warning; `host`: only those for this machine. */
export const SERVED_ARCHITECTURES = ['any', 'host'] as const;

export interface ArchitecturePolicy {
  readonly served: (typeof SERVED_ARCHITECTURES)[number];
  /** This machine's, as SIF knows it. */
  readonly host: string;
}

export class ArchitectureGate {
  readonly #policy: ArchitecturePolicy;
  readonly #log: Logger;
  /** Blobs of which the log tells already. */
  readonly #told = new Set<string>();

  constructor(policy: ArchitecturePolicy, log: Logger) {
    this.#policy = policy;
    this.#log = log;
  }

  /** Lets a blob pass, with one warning where it is for another machine. Errors: EBADMSG only this machine's are served. */
  admit(proof: Proof, path: string): void {
    if (proof.architecture === this.#policy.host) return;
    const refusal = this.refusal(proof);
    const words = `${path} ${refusal ?? `${this.#misfit(proof)}; it is served all the same`}`;
    if (!this.#told.has(proof.sha256)) this.#log.warn({ blob: proof.sha256, architecture: proof.architecture }, words);
    this.#told.add(proof.sha256);
    if (refusal !== undefined) throw new TmaxError('EBADMSG', words, { source: 'cache' });
  }

  /** Why a blob is not served although it is proven, or undefined. */
  refusal(proof: Proof): string | undefined {
    if (this.#policy.served === 'any' || proof.architecture === this.#policy.host) return undefined;
    return `${this.#misfit(proof)}; mount with --arch any to have it served`;
  }

  /** The blob is gone. */
  forget(sha256: string): void {
    this.#told.delete(sha256);
  }

  #misfit({ architecture }: Proof): string {
    return `is an image for ${architecture}, and this machine is ${this.#policy.host}`;
  }
}
