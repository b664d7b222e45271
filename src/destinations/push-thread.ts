/** A thread that uploads to a registry, a blob at a time: TLS and reading away from the thread that answers the kernel. */

import { setTimeout as delay } from 'node:timers/promises';
import { TmaxError } from '../errors.js';
import { workBehind } from '../scheduling.js';
import type { HttpSettings } from '../sources/http-client.js';
import { type PlainError, plainError } from '../sources/plain-error.js';
import type { Registry } from '../sources/registry.js';
import { type PushedBlob, RegistryPush } from './registry-push.js';

workBehind();

export interface PushJob {
  readonly kind: 'push' | 'look';
  readonly registry: Registry;
  readonly http: HttpSettings;
  /** `user:password` in base64. */
  readonly secret: string | undefined;
  readonly blob: PushedBlob;
  /** The proven file; of no meaning for a look. */
  readonly path: string;
}

export type PushOutcome =
  | { readonly kind: 'written' | 'there' | 'absent' }
  | { readonly kind: 'failed'; readonly error: PlainError };

const MAX_ATTEMPTS = 3;
const RETRY_AFTER_MS = 1000;

/** It keeps its connections and its token. */
let push: RegistryPush | undefined;

/** Never rejects. */
export default async function run(job: PushJob): Promise<PushOutcome> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      push ??= new RegistryPush(job.registry, job.http);
      push.secret = job.secret;
      if (job.kind === 'look') return { kind: (await push.has(job.blob)) ? 'there' : 'absent' };
      return { kind: await push.push(job.blob, job.path) };
    } catch (error) {
      const mayHeal = error instanceof TmaxError && error.errno === 'EHOSTUNREACH';
      if (!mayHeal || attempt >= MAX_ATTEMPTS) return { kind: 'failed', error: plainError(error, job.registry.shown) };
      await delay(RETRY_AFTER_MS * attempt);
    }
  }
}
