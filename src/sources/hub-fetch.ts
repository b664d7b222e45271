/**
 * The `fetch` that the Hub's library is given: it does what the library does not. Deadlines, retries, bounded bodies,
 * the token kept on the Hub's host, errors with the Hub's own reason.
 *
 * An answer that it returns is whole, in memory and accepted; every other outcome is a thrown `TmaxError`.
 */

import { TmaxError } from '../errors.js';
import { TransientFailure } from './failure.js';
import type { HttpReply } from './http-client.js';
import { type RequestContext, statusError } from './hub-errors.js';
import type { HubHttp } from './hub-http.js';
import { endpointText } from './hub-settings.js';
import type { RequestKind } from './rate-governor.js';
import type { AttemptsOptions } from './retry.js';
import { Attempts } from './retry.js';

export interface HubFetchOptions {
  readonly http: HubHttp;
  readonly kind: RequestKind;
  readonly attempts: AttemptsOptions;
  readonly context: Omit<RequestContext, 'endpoint' | 'hasToken'>;
  readonly maxBytes: number;
  /** Throws a `TransientFailure` for a body that can't be what was asked for. */
  readonly accept: (body: Buffer, reply: HttpReply) => void;
}

export function hubFetch(options: HubFetchOptions): typeof fetch {
  return async (input) => {
    const url = new URL(input instanceof Request ? input.url : input);
    return new Attempts(options.attempts).run(() => fetchOnce(url, options));
  };
}

async function fetchOnce(
  url: URL,
  { http, kind, attempts, context, maxBytes, accept }: HubFetchOptions,
): Promise<Response> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  const { reply } = await http.get({
    url,
    kind,
    signal: attempts.signal,
    onReply: ({ status }) => {
      if (status !== 200) return undefined;
      return (chunk) => {
        sizeBytes += chunk.length;
        if (sizeBytes > maxBytes) throw new TmaxError('EBADMSG', tooLarge(url, maxBytes), { source: 'hub' });
        chunks.push(chunk);
      };
    },
  });
  if (reply.status !== 200) {
    const hasToken = (await http.credentials.token()) !== undefined;
    throw statusError(reply, { ...context, endpoint: endpointText(http.endpoint), hasToken });
  }
  if (reply.header('content-encoding') !== undefined && reply.header('content-encoding') !== 'identity') {
    throw new TransientFailure('EBADMSG', `${url.host} sends ${url.pathname} compressed, which was not asked for`);
  }
  const body = Buffer.concat(chunks);
  accept(body, reply);
  const link = reply.header('link');
  return new Response(body, { status: 200, headers: link === undefined ? {} : { link } });
}

function tooLarge(url: URL, maxBytes: number): string {
  return `${url.host} sends more than ${maxBytes} bytes for ${url.pathname}: not what was asked for`;
}
