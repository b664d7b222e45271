/**
 * How a registry wants to be asked: not at all, by user and password, or by a token that another server gives for them, or for
 * nothing. Learnt once and shared by all who ask, renewed before it runs out. A token or a password goes to its own
 * origin, never to where a registry redirects, and never in a message.
 *
 * Sources: https://distribution.github.io/distribution/spec/auth/token/, and RFC 9110, 11.6.1 for the challenge.
 */

import * as v from 'valibot';
import { TmaxError } from '../errors.js';
import { AbsentBlob, TransientFailure } from './failure.js';
import type { HttpReply } from './http-client.js';
import { isTransient, transientStatus } from './hub-errors.js';
import { baseUrl, type Registry } from './registry.js';
import type { SourceHttp } from './source-http.js';

export type RegistryActions = 'pull' | 'pull,push';

/** `user:password` in base64, as `docker login` keeps it, for the moment; undefined where nobody has logged in. */
export type RegistrySecret = () => Promise<string | undefined>;

type Challenge =
  | { readonly kind: 'none' | 'basic' }
  | { readonly kind: 'bearer'; readonly realm: URL; readonly service: string | undefined };

interface Authorization {
  /** Value of the header; undefined: none is wanted. */
  readonly value: string | undefined;
  /** By `performance.now()`. */
  readonly untilMs: number;
}

const tokenShape = v.object({
  token: v.optional(v.string()),
  access_token: v.optional(v.string()),
  expires_in: v.optional(v.number()),
});
const TOKEN = /^[\x21-\x7e]+$/;
const MAX_ANSWER_BYTES = 256 * 1024;
/** Of a token that does not say so itself, as its specification has it. */
const TOKEN_LASTS_S = 60;
/** A token is renewed when this share of its time is left. */
const RENEW_SHARE = 0.25;
/** That nothing is wanted, or a password is, is not asked again for so long. */
const SETTLED_MS = 300_000;

export class RegistryLogin {
  readonly #registry: Registry;
  readonly #http: SourceHttp;
  readonly #actions: RegistryActions;
  #challenge: Challenge | undefined;
  #current: Authorization | undefined;
  #asking: Promise<void> | undefined;

  constructor(registry: Registry, http: SourceHttp, actions: RegistryActions) {
    this.#registry = registry;
    this.#http = http;
    this.#actions = actions;
  }

  /** Resolves once it is known how to ask. All who wait share the question. Errors: EACCES; `TransientFailure`s. */
  async ready(secret: RegistrySecret): Promise<void> {
    if (this.#current !== undefined && performance.now() < this.#current.untilMs) return;
    // Not called off with whoever asked first: it has the deadlines of any request.
    this.#asking ??= this.#ask(secret, new AbortController().signal).finally(() => {
      this.#asking = undefined;
    });
    await this.#asking;
  }

  /** Headers for one URL. */
  headersFor(url: URL): Record<string, string> {
    const value = url.origin === this.#registry.origin ? this.#current?.value : undefined;
    return value === undefined ? {} : { authorization: value };
  }

  /** The registry has answered 401: it is asked by what that says, next time. Errors: it is returned, to be thrown. */
  refused(reply: HttpReply, what: string): TmaxError {
    this.#current = undefined;
    this.#challenge = parseChallenge(reply.header('www-authenticate'), this.#registry) ?? this.#challenge;
    const words = `${this.#registry.shown} answers 401 for ${what}: ${LOG_IN}`;
    return new TransientFailure('EACCES', words, { staleUrl: true });
  }

  async #ask(secret: RegistrySecret, signal: AbortSignal): Promise<void> {
    this.#challenge ??= await this.#firstChallenge(signal);
    const challenge = this.#challenge;
    if (challenge.kind === 'none') this.#current = { value: undefined, untilMs: performance.now() + SETTLED_MS };
    else if (challenge.kind === 'bearer') this.#current = await this.#token(challenge, await secret(), signal);
    else {
      const password = await secret();
      if (password === undefined) throw this.#denied('wants a user and a password');
      this.#current = { value: `Basic ${password}`, untilMs: performance.now() + SETTLED_MS };
    }
  }

  async #firstChallenge(signal: AbortSignal): Promise<Challenge> {
    const { reply } = await this.#http.get({
      url: baseUrl(this.#registry),
      kind: 'api',
      signal,
      onReply: () => undefined,
    });
    const { status } = reply;
    if (status === 200) return { kind: 'none' };
    const { shown } = this.#registry;
    if (isTransient(status)) throw transientStatus(reply, `${shown} answers ${status}`);
    if (status !== 401) throw new AbsentBlob(`${shown} answers ${status} for /v2/: is it a registry?`);
    const challenge = parseChallenge(reply.header('www-authenticate'), this.#registry);
    if (challenge !== undefined) return challenge;
    throw this.#denied('wants to be asked in a way that is not known here (neither Bearer nor Basic)');
  }

  async #token(
    { realm, service }: Extract<Challenge, { kind: 'bearer' }>,
    password: string | undefined,
    signal: AbortSignal,
  ): Promise<Authorization> {
    const url = new URL(realm);
    if (service !== undefined) url.searchParams.set('service', service);
    url.searchParams.set('scope', `repository:${this.#registry.name}:${this.#actions}`);
    const chunks: Buffer[] = [];
    let bytes = 0;
    const { reply } = await this.#http.get({
      url,
      kind: 'api',
      signal,
      headersFor: async ({ origin }): Promise<Record<string, string>> =>
        password !== undefined && origin === realm.origin ? { authorization: `Basic ${password}` } : {},
      onReply: ({ status }) => {
        if (status !== 200) return undefined;
        return (chunk) => {
          bytes += chunk.length;
          if (bytes > MAX_ANSWER_BYTES) throw new TransientFailure('EBADMSG', `${realm.host} sends no token`);
          chunks.push(chunk);
        };
      },
    });
    const { status } = reply;
    if (isTransient(status)) throw transientStatus(reply, `${realm.host} answers ${status} when asked for a token`);
    if (status !== 200) throw this.#denied(`is not to be asked by us: ${realm.host} gives no token (${status})`);
    const { token, lastsS } = parseToken(Buffer.concat(chunks).toString('utf8'), realm);
    return { value: `Bearer ${token}`, untilMs: performance.now() + lastsS * 1000 * (1 - RENEW_SHARE) };
  }

  #denied(words: string): TmaxError {
    return new TmaxError('EACCES', `${this.#registry.shown} ${words}: ${LOG_IN}`);
  }
}

const LOG_IN = 'log in to it with "docker login" or "podman login --authfile ~/.docker/config.json"';

/** Undefined where it is none that is known. */
function parseChallenge(header: string | undefined, { origin }: Registry): Challenge | undefined {
  const [, scheme = '', rest = ''] = /^\s*(\w+)\s*(.*)$/s.exec(header ?? '') ?? [];
  if (/^basic$/i.test(scheme)) return { kind: 'basic' };
  if (!/^bearer$/i.test(scheme)) return undefined;
  const words = new Map([...rest.matchAll(/\b(\w+)\s*=\s*"([^"]*)"/g)].map(([, key = '', value = '']) => [key, value]));
  const realm = words.get('realm') ?? '';
  if (!URL.canParse(realm)) return undefined;
  const url = new URL(realm);
  // A password is not to travel in less safety than what it is for.
  const isSafe = url.protocol === 'https:' || (url.protocol === 'http:' && origin.startsWith('http:'));
  return isSafe ? { kind: 'bearer', realm: url, service: words.get('service') } : undefined;
}

function parseToken(text: string, realm: URL): { readonly token: string; readonly lastsS: number } {
  try {
    const { token, access_token: other, expires_in: lastsS = TOKEN_LASTS_S } = v.parse(tokenShape, JSON.parse(text));
    const value = token ?? other ?? '';
    if (TOKEN.test(value)) return { token: value, lastsS: Math.max(0, lastsS) };
  } catch {
    // As below.
  }
  throw new TransientFailure('EBADMSG', `what ${realm.host} gives is no token`);
}
