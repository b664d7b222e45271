/**
 * One text that tells all that whoever helps has to know, in sections. Every section is gathered with a deadline and cut at a limit; one
 * that can't be had says why. Secrets are taken out of the whole at the end, whatever section they came from.
 */

import { messageOf } from '../errors.js';

export interface Section {
  readonly title: string;
  readonly gather: () => Promise<string>;
}

/** Of one section. */
const GATHER_LIMIT_MS = 20_000;
const MAX_SECTION_CHARACTERS = 512 * 1024;

/** The sections in their order, gathered at the same time. */
export async function writeReport(sections: readonly Section[], redact: (text: string) => string): Promise<string> {
  const texts = await Promise.all(
    sections.map(async ({ title, gather }) => {
      const text = await gathered(gather);
      return `== ${title}\n\n${cut(text.trimEnd())}\n`;
    }),
  );
  return redact(texts.join('\n'));
}

async function gathered(gather: () => Promise<string>): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`(not to be had within ${GATHER_LIMIT_MS / 1000} s)`), GATHER_LIMIT_MS);
  });
  const text = Promise.resolve()
    .then(gather)
    .catch((thrown: unknown) => `(not to be had: ${messageOf(thrown)})`);
  return Promise.race([text, deadline]).finally(() => clearTimeout(timer));
}

/** At a line's end: half a secret would not be known for one. */
function cut(text: string): string {
  if (text.length <= MAX_SECTION_CHARACTERS) return text;
  const end = text.lastIndexOf('\n', MAX_SECTION_CHARACTERS);
  return `${text.slice(0, Math.max(0, end))}\n(cut: it has ${text.length} characters)`;
}
