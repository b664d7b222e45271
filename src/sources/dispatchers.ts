/** Connections, direct and through proxies, with the user's certificates. Owns every socket of the room. */

import { readFileSync } from 'node:fs';
import { Agent, type Dispatcher, Pool, ProxyAgent } from 'undici';
import { messageOf, TmaxError } from '../errors.js';
import { FAMILY_ATTEMPT_MS } from './limits.js';
import { type HttpProxy, type ProxySettings, proxyFor } from './proxy.js';

export interface ConnectionSettings {
  readonly connectTimeoutMs: number;
  readonly proxy?: ProxySettings | undefined;
  /** PEM bundle that takes the place of the built-in authorities, as SSL_CERT_FILE does elsewhere. */
  readonly caFile?: string | undefined;
}

export interface Route {
  readonly dispatcher: Dispatcher;
  readonly proxy: HttpProxy | undefined;
}

export class Dispatchers {
  readonly #proxySettings: ProxySettings | undefined;
  readonly #options: Agent.Options;
  readonly #direct: Agent;
  readonly #proxies = new Map<string, ProxyAgent>();

  /** Errors: EINVAL unreadable certificate file. */
  constructor({ connectTimeoutMs, proxy, caFile }: ConnectionSettings) {
    this.#proxySettings = proxy;
    const connect = {
      timeout: connectTimeoutMs,
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: FAMILY_ATTEMPT_MS,
      ...(caFile === undefined ? {} : { ca: readCertificates(caFile) }),
    };
    // The deadlines for headers and bodies are the HTTP client's own: undici's do not see a trickle.
    this.#options = { connect, headersTimeout: 0, bodyTimeout: 0 };
    this.#direct = new Agent(this.#options);
  }

  /** How a URL is reached. Errors: EINVAL the proxy's URL is none. */
  route(url: URL): Route {
    const proxy = proxyFor(url, this.#proxySettings);
    return { proxy, dispatcher: proxy === undefined ? this.#direct : this.#proxyAgent(proxy) };
  }

  /** Cuts every connection; requests that are under way fail. */
  async close(): Promise<void> {
    await Promise.all([this.#direct, ...this.#proxies.values()].map((dispatcher) => dispatcher.destroy()));
  }

  #proxyAgent(proxy: HttpProxy): ProxyAgent {
    const present = this.#proxies.get(proxy.url);
    if (present !== undefined) return present;
    const { connect, ...options } = this.#options;
    const tls = typeof connect === 'object' ? connect : {};
    try {
      const agent = new ProxyAgent({
        ...options,
        uri: proxy.url,
        requestTls: tls,
        proxyTls: tls,
        // Plain http goes through a proxy in absolute form: few allow CONNECT to port 80.
        proxyTunnel: false,
        clientFactory: (origin, given) => new Pool(origin, given),
      });
      this.#proxies.set(proxy.url, agent);
      return agent;
    } catch (error) {
      const hint = `${proxy.variable} is not the URL of an HTTP proxy: set it to http://host:port`;
      throw new TmaxError('EINVAL', hint, { cause: error, source: 'hub' });
    }
  }
}

function readCertificates(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new TmaxError('EINVAL', `can't read the certificate file (SSL_CERT_FILE): ${messageOf(error)}`, {
      cause: error,
      source: 'hub',
    });
  }
}
