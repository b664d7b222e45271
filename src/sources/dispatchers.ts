/** Connections, direct and through proxies, with the user's certificates. Owns every socket of the room. */

import { readFileSync } from 'node:fs';
import { Agent, type Dispatcher, Pool, ProxyAgent } from 'undici';
import { messageOf, TmaxError } from '../errors.js';
import { FAMILY_ATTEMPT_MS } from './limits.js';
import { type HttpProxy, type ProxySettings, proxyFor, proxyUrl } from './proxy.js';

export interface ConnectionSettings {
  readonly connectTimeoutMs: number;
  readonly proxy?: ProxySettings | undefined;
  /**
   * `http://host:port` of an HTTP proxy that every request goes to as a whole URL, those of https too, for it to fetch by itself
   * (absolute-form, RFC 9112, 3.2.2). In the place of `proxy`.
   */
  readonly forwardProxy?: string | undefined;
  /** PEM bundle that takes the place of the built-in authorities, as SSL_CERT_FILE does elsewhere. */
  readonly caFile?: string | undefined;
}

export interface Route {
  readonly dispatcher: Dispatcher;
  /** The server that is connected to, or that a proxy is to connect to. */
  readonly origin: string;
  /** The target of the request. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** What to look at first where nothing comes. */
  readonly where: string;
}

export class Dispatchers {
  readonly #proxySettings: ProxySettings | undefined;
  readonly #forwardProxy: string | undefined;
  readonly #options: Agent.Options;
  readonly #direct: Agent;
  readonly #proxies = new Map<string, ProxyAgent>();

  /** Errors: EINVAL a proxy that is no URL, an unreadable certificate file. */
  constructor(settings: ConnectionSettings) {
    checkConnectionSettings(settings);
    const { connectTimeoutMs, proxy, forwardProxy, caFile } = settings;
    this.#proxySettings = proxy;
    this.#forwardProxy = forwardProxy;
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

  /** How a URL is reached. */
  route(url: URL): Route {
    const { origin, host } = url;
    const path = url.pathname + url.search;
    if (this.#forwardProxy !== undefined) {
      const where = `the proxy ${this.#forwardProxy} leads nowhere for ${origin}`;
      const target = { origin: this.#forwardProxy, path: origin + path, headers: { host } };
      return { dispatcher: this.#direct, where, ...target };
    }
    const proxy = proxyFor(url, this.#proxySettings);
    if (proxy === undefined) {
      return { dispatcher: this.#direct, origin, path, headers: {}, where: `${host} can't be reached` };
    }
    const where = `${proxy.variable} (${proxy.shown}) is set and leads nowhere for ${origin}`;
    return { dispatcher: this.#proxyAgent(proxy), origin, path, headers: {}, where };
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
  }
}

/** Finds what is wrong with the settings before any connection is made. Errors: EINVAL. */
export function checkConnectionSettings({ caFile, proxy }: ConnectionSettings): void {
  if (caFile !== undefined) readCertificates(caFile);
  for (const [variable, value] of [
    ['HTTP_PROXY', proxy?.httpProxy],
    ['HTTPS_PROXY', proxy?.httpsProxy],
  ] as const) {
    if (value !== undefined && value !== '') checkProxyUrl(variable, proxyUrl(value));
  }
}

function checkProxyUrl(variable: string, url: string): void {
  if (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)) return;
  throw new TmaxError('EINVAL', `${variable} is not the URL of an HTTP proxy: set it to http://host:port`, {
    source: 'hub',
  });
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
