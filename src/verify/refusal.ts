/**
 * How a reader deep in a format says that the image can't pass: it throws a `Refusal`, and `verifyImage` turns that
 * into a verdict. A refusal never leaves this room.
 */

import { TmaxError } from '../errors.js';
import type { Finding } from './verdict.js';

/** A finding whose sentence may be left to follow from the values. */
export type FindingDraft = Omit<Finding, 'message'> & { readonly message?: string };

export class Refusal extends TmaxError {
  readonly outcome: 'invalid' | 'unsupported';
  readonly finding: Finding;

  constructor(outcome: 'invalid' | 'unsupported', finding: Finding) {
    super(outcome === 'invalid' ? 'EBADMSG' : 'ENOTSUP', finding.message, { source: 'verify' });
    this.outcome = outcome;
    this.finding = finding;
  }
}

/** The bytes contradict the format, or themselves. */
export function invalid(draft: FindingDraft): Refusal {
  return new Refusal('invalid', finding(draft));
}

/** The bytes may well be sound, but in a form that is not served; the message says what to do about it. */
export function unsupported(draft: FindingDraft & { readonly message: string }): Refusal {
  return new Refusal('unsupported', finding(draft));
}

export function finding(draft: FindingDraft): Finding {
  return { ...draft, message: draft.message ?? sentence(draft) };
}

function sentence(draft: FindingDraft): string {
  const where = draft.offsetBytes === undefined ? '' : ` at byte ${draft.offsetBytes}`;
  const expected = draft.expected === undefined ? '' : `, expected ${draft.expected}`;
  return `${draft.field ?? draft.code}${where} is ${draft.found ?? 'wrong'}${expected}`;
}
