/** The ways in which a Hub, its CDN or the network between can fail, and when they do. */

import type { LoggedRequest, ServerName } from './fake-hub-log.js';

export type Fault =
  /** Answers with this status instead. */
  | {
      readonly kind: 'status';
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: string;
    }
  /** The connection is reset (RST), before any byte of the answer or after so many of its body. */
  | { readonly kind: 'reset'; readonly afterBytes?: number }
  /** The connection is closed in the middle of a body that was announced whole. */
  | { readonly kind: 'cut'; readonly afterBytes: number }
  /** Nothing more is sent, on an open connection: before the headers, or after so many bytes of the body. */
  | { readonly kind: 'stall'; readonly afterBytes?: number }
  /** The body is shorter, and every header agrees with the shorter length. */
  | { readonly kind: 'truncate'; readonly toBytes: number }
  /** The body is longer by so many zero bytes, and Content-Length agrees. */
  | { readonly kind: 'excess'; readonly bytes: number }
  /** No Content-Length; the body ends early, and properly so. */
  | { readonly kind: 'chunked'; readonly afterBytes: number }
  /** One bit of the file is flipped, at this offset in the whole file. */
  | { readonly kind: 'corrupt'; readonly atByte: number }
  /** 200 with the whole file in answer to a Range request. */
  | { readonly kind: 'ignore-range' }
  /** 206 with other bytes than those asked for, as its Content-Range says. */
  | { readonly kind: 'wrong-range'; readonly shiftBytes: number }
  | { readonly kind: 'slow'; readonly bytesPerSecond: number }
  /** Content-Encoding: gzip, though nobody asked for it. */
  | { readonly kind: 'gzip' }
  /** The 200 of a captive portal. */
  | { readonly kind: 'html' }
  | { readonly kind: 'no-content' }
  /** 302 to itself. */
  | { readonly kind: 'redirect-loop' }
  /** The CDN's 403 for a URL whose time has run out. */
  | { readonly kind: 'expired' };

export interface FaultRule {
  readonly fault: Fault;
  readonly server?: ServerName;
  /** Path in the repository, or a pattern for the URL as sent. Default: every request. */
  readonly path?: string | RegExp;
  /** Which of the matching requests fail, counted from 1. Default: the first. */
  readonly requests?: readonly number[] | 'every';
}

/** A rule in force. */
export interface InstalledFault {
  /** How often it has struck. */
  readonly hits: number;
  remove(): void;
}

class Rule implements InstalledFault {
  hits = 0;
  #matching = 0;

  constructor(
    readonly rule: FaultRule,
    readonly remove: () => void,
  ) {}

  /** Whether the rule strikes this request; every request it matches counts. */
  strikes(request: LoggedRequest): boolean {
    const { server, path, requests = [1] } = this.rule;
    if (server !== undefined && server !== request.server) return false;
    if (typeof path === 'string' && path !== request.file) return false;
    if (path instanceof RegExp && !path.test(request.url)) return false;
    this.#matching += 1;
    return requests === 'every' || requests.includes(this.#matching);
  }
}

export class FaultPlan {
  readonly #rules = new Set<Rule>();

  add(rule: FaultRule): InstalledFault {
    const installed: Rule = new Rule(rule, () => this.#rules.delete(installed));
    this.#rules.add(installed);
    return installed;
  }

  clear(): void {
    this.#rules.clear();
  }

  /** The fault that this request is to suffer, if any: of several, that of the oldest rule. */
  strike(request: LoggedRequest): Fault | undefined {
    const striking = [...this.#rules].filter((rule) => rule.strikes(request))[0];
    if (striking === undefined) return undefined;
    striking.hits += 1;
    return striking.rule.fault;
  }
}
