/** Whether a URL is reached through a proxy, as the usual variables say; values come from settings, never from the environment. */

import { BlockList, isIP } from 'node:net';

export interface ProxySettings {
  /** For `http:` URLs; value of HTTP_PROXY. */
  readonly httpProxy?: string | undefined;
  /** For `https:` URLs; value of HTTPS_PROXY. */
  readonly httpsProxy?: string | undefined;
  /** Value of NO_PROXY: host names (subdomains included), addresses, CIDR blocks, each with an optional port, or `*`. */
  readonly noProxy?: string | undefined;
}

export interface HttpProxy {
  readonly variable: 'HTTP_PROXY' | 'HTTPS_PROXY';
  readonly url: string;
  /** Scheme, host and port: what may be shown, since the URL may hold a password. */
  readonly shown: string;
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'http:': '80', 'https:': '443' };

/** The proxy for this URL, or undefined for a direct connection. */
export function proxyFor(url: URL, settings: ProxySettings | undefined): HttpProxy | undefined {
  const secure = url.protocol === 'https:';
  const value = secure ? settings?.httpsProxy : settings?.httpProxy;
  if (value === undefined || value === '' || isExempt(url, settings?.noProxy ?? '')) return undefined;
  const full = proxyUrl(value);
  return { variable: secure ? 'HTTPS_PROXY' : 'HTTP_PROXY', url: full, shown: new URL(full).origin };
}

/** The scheme may be left out. */
export function proxyUrl(value: string): string {
  return value.includes('://') ? value : `http://${value}`;
}

function isExempt(url: URL, noProxy: string): boolean {
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1').toLowerCase();
  const port = url.port || DEFAULT_PORTS[url.protocol];
  return noProxy
    .split(/[\s,]+/)
    .filter((entry) => entry !== '')
    .some((entry) => entry === '*' || matches(entry.toLowerCase(), host, port));
}

function matches(entry: string, host: string, port: string | undefined): boolean {
  const [network = '', prefix] = entry.split('/');
  const family = isIP(network);
  if (family !== 0 && prefix !== undefined)
    return inBlock(host, network, Number(prefix), family === 6 ? 'ipv6' : 'ipv4');
  if (family !== 0) return host === network;
  const [, bracketed, plain = '', entryPort] = /^(?:\[(.+)\]|(.+?))(?::(\d+))?$/.exec(entry) ?? [];
  if (entryPort !== undefined && entryPort !== port) return false;
  const name = bracketed ?? plain.replace(/^\*?\./, '');
  return host === name || host.endsWith(`.${name}`);
}

function inBlock(host: string, network: string, prefix: number, family: 'ipv4' | 'ipv6'): boolean {
  const longest = family === 'ipv6' ? 128 : 32;
  if (!Number.isInteger(prefix) || prefix < 0 || prefix > longest || isIP(host) === 0) return false;
  const block = new BlockList();
  block.addSubnet(network, prefix, family);
  return block.check(host, isIP(host) === 6 ? 'ipv6' : 'ipv4');
}
