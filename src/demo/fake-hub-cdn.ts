/**
 * The storage behind the fake Hub: signed URLs that expire, under a host name of their own.
 *
 * The path of a URL is stable for a file, the query changes with every signature. Whoever brings an Authorization
 * header is refused, as the real storage does: a token that reaches it is a leak.
 */

import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { bodyOf, expiredReply, type Reply, textReply } from './fake-hub-reply.js';
import type { FakeFile } from './fake-hub-repository.js';

export class FakeCdn {
  readonly #lifetimeMs: number;
  readonly #objects = new Map<string, FakeFile>();
  #key = randomBytes(32);

  constructor(lifetimeMs: number) {
    this.#lifetimeMs = lifetimeMs;
  }

  /** Every URL signed so far is out of date from now on. */
  expireAll(): void {
    this.#key = randomBytes(32);
  }

  /** Path and query of a fresh URL for a file. */
  sign(repository: string, file: FakeFile): string {
    const owner = digest(repository).slice(0, 24);
    const path = `/repos/${owner.slice(0, 2)}/${owner}/${digest(`${file.path}\0${file.sha256}`)}`;
    this.#objects.set(path, file);
    const name = encodeURIComponent(`inline; filename="${file.path.split('/').at(-1)}";`);
    const signed = `${path}?response-content-disposition=${name}&Expires=${Date.now() + this.#lifetimeMs}`;
    return `${signed}&Signature=${this.#signature(signed)}`;
  }

  /** The file a path stands for, whether or not the URL is valid. */
  fileAt(url: string): FakeFile | undefined {
    return this.#objects.get(url.split('?')[0] ?? '');
  }

  answer(url: string, authorization: string | undefined): Reply {
    if (authorization !== undefined) {
      return textReply(
        400,
        '<Error><Code>InvalidArgument</Code><Message>Only one auth mechanism allowed</Message></Error>',
      );
    }
    const file = this.fileAt(url);
    if (file === undefined || !this.#isValid(url)) return expiredReply();
    const body = bodyOf(file);
    if (body === undefined) return textReply(404, '<Error><Code>NoSuchKey</Code></Error>');
    const headers = {
      'content-type': 'application/octet-stream',
      'accept-ranges': 'bytes',
      etag: `"${digest(file.sha256).slice(0, 32)}"`,
      'x-cache': 'Hit from cloudfront',
    };
    return { status: 200, headers, body, ranged: true };
  }

  #isValid(url: string): boolean {
    const [signed = '', signature = ''] = url.split('&Signature=');
    const expires = Number(/[?&]Expires=(\d+)/.exec(signed)?.[1] ?? 0);
    const [expected, given] = [Buffer.from(this.#signature(signed)), Buffer.from(signature)];
    return expires > Date.now() && expected.length === given.length && timingSafeEqual(expected, given);
  }

  #signature(signed: string): string {
    return createHmac('sha256', this.#key).update(signed).digest('hex');
  }
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
