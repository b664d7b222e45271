/** What an unsuccessful answer means, in words that say what to do. `X-Error-Code` is the Hub's own name for the reason. */

import { TmaxError } from '../errors.js';
import { TransientFailure } from './failure.js';
import type { HttpReply } from './http-client.js';
import { MAX_QUOTED_CHARACTERS } from './limits.js';
import { requestedPauseMs } from './rate-limit-headers.js';

/** What a request was about, as far as a message needs it. */
export interface RequestContext {
  readonly endpoint: string;
  readonly repository: string;
  /** As the user wrote it, or a commit. */
  readonly revision: string;
  readonly path?: string;
  readonly hasToken: boolean;
}

/** The error for any status that is not the expected one. Only some are worth another attempt. */
export function statusError(reply: HttpReply, context: RequestContext): TmaxError {
  const { status } = reply;
  if (status === 401 || status === 403) return new TmaxError('EACCES', refusal(reply, context), { source: 'hub' });
  if (status === 404) return new TmaxError('ENOENT', absence(reply, context), { source: 'hub' });
  const said = quoted(reply);
  const about = subject(context);
  if (status === 407) {
    const message = 'the proxy asks for a user and a password: put them into HTTPS_PROXY or HTTP_PROXY';
    return new TmaxError('EHOSTUNREACH', message, { source: 'hub' });
  }
  if (isTransient(status)) {
    return transientStatus(reply, `the Hub answers ${status}${said} for ${about}`);
  }
  if (status < 400) {
    const message = `${context.endpoint} answers ${status}, which means nothing here, for ${about}: is it a Hub?`;
    return new TransientFailure('EBADMSG', message);
  }
  return new TmaxError('EIO', `the Hub refuses a request as wrong (${status}${said}) for ${about}`, {
    source: 'hub',
    level: 'error',
  });
}

/** Overload, time-outs and the server's own faults. */
export function isTransient(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

/** A failure that obeys the pause which the answer asks for. */
export function transientStatus(reply: HttpReply, message: string): TransientFailure {
  const retryAfterMs = requestedPauseMs(reply);
  return new TransientFailure('EHOSTUNREACH', message, retryAfterMs === undefined ? {} : { retryAfterMs });
}

function refusal(reply: HttpReply, context: RequestContext): string {
  const { endpoint, repository, hasToken } = context;
  switch (reply.header('x-error-code')) {
    case 'GatedRepo': {
      const login = hasToken ? 'with the account of the token' : 'and set HF_TOKEN';
      return `the dataset ${repository} is gated: accept its terms at ${endpoint}/datasets/${repository} ${login}`;
    }
    case 'RepoNotFound':
      return hasToken
        ? `the token may not read the dataset ${repository}: check the name and the rights of the token`
        : `no dataset ${repository} can be seen without a token: check the name, or set HF_TOKEN if it is private`;
    default: {
      const about = hasToken ? 'the token is refused: is it expired or revoked?' : 'set HF_TOKEN if this needs a login';
      return `${endpoint} answers ${reply.status}${quoted(reply)} for ${subject(context)}; ${about}`;
    }
  }
}

function absence(reply: HttpReply, context: RequestContext): string {
  const { endpoint, repository, revision, path } = context;
  switch (reply.header('x-error-code')) {
    case 'RepoNotFound':
      return `there is no dataset ${repository}, or the token may not read it: check both`;
    case 'RevisionNotFound':
      return `the dataset ${repository} has no revision "${revision}": name a branch, a tag or a commit of it`;
    case 'EntryNotFound':
      return `the dataset ${repository} has no file ${path ?? '(unnamed)'} at ${revision}`;
    default:
      return `${endpoint} answers 404 for ${subject(context)}: check the repository, and HF_ENDPOINT if it is a mirror`;
  }
}

function subject({ repository, revision, path }: RequestContext): string {
  return `${repository}@${revision}${path === undefined ? '' : `/${path}`}`;
}

/** What the server says, if it says anything, made safe to show: one line, short, no token. */
function quoted(reply: HttpReply): string {
  const text = (reply.header('x-error-message') ?? '')
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .replaceAll(/hf_\w+/g, 'hf_...')
    .slice(0, MAX_QUOTED_CHARACTERS)
    .trim();
  return text === '' ? '' : ` ("${text}")`;
}
