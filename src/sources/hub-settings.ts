/** What a client of the Hub has to be told. Plain data but for the token and the logger. */

import type { Logger } from 'pino';
import { TmaxError } from '../errors.js';
import type { HttpSettings } from './http-client.js';

export interface HubSettings extends HttpSettings {
  /** As HF_ENDPOINT has it: scheme, host, port, and a path where a mirror has one. */
  readonly endpoint: string;
  /** Asked before each request that may carry it, so that a renewed token is seen. */
  readonly token: () => Promise<string | undefined>;
  readonly log: Logger;
}

/** The endpoint without trailing slashes. Errors: EINVAL. */
export function parseEndpoint(endpoint: string): URL {
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (url === undefined || (url.protocol !== 'https:' && url.protocol !== 'http:')) {
    throw new TmaxError('EINVAL', 'the endpoint of the Hub (HF_ENDPOINT) is not an http(s) URL', { source: 'hub' });
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    const message =
      'the endpoint of the Hub (HF_ENDPOINT) must hold no user, password, query or fragment: use HF_TOKEN';
    throw new TmaxError('EINVAL', message, { source: 'hub' });
  }
  url.pathname = url.pathname.replace(/\/+$/, '');
  return url;
}

/** The endpoint as the library wants it: no trailing slash. */
export function endpointText(endpoint: URL): string {
  return endpoint.href.replace(/\/+$/, '');
}
