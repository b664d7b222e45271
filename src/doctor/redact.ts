/**
 * Takes secrets out of text that is to be handed to others: those that are known by their value (the token, passwords of proxies,
 * variables whose name says so), in every spelling in which they may stand in a log, and whatever looks like one.
 * Rather too much is taken out than too little.
 */

/** In the place of each. */
export const REMOVED = '[removed]';

/** Variables whose value nobody else has to see. */
const SECRET_NAME = /TOKEN|SECRET|PASSW|JWT|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY/i;
/** Names that look like it and hold no secret: places, and switches. */
const PLAIN_NAME = /_PATH$|_FILE$|DISABLE_IMPLICIT_TOKEN$/;
const PROXY_NAME = /_proxy$/i;
/** Shorter ones would take half of the words with them. */
const MIN_LENGTH = 4;

/** What looks like a secret, and what is left of it. */
const PATTERNS: readonly (readonly [RegExp, string])[] = [
  // Tokens of the Hub, of today and of old, and of its organisations.
  [/\b(hf|api_org|api)_[A-Za-z0-9]{6,}[\w.-]*/g, `$1_${REMOVED}`],
  [/\b(Bearer|Basic|Digest|Negotiate)\s+[^\s"',;]+/gi, `$1 ${REMOVED}`],
  [/((?:proxy-)?authorization|cookie)(["']?\s*[:=]\s*["']?)[^"'\r\n]+/gi, `$1$2${REMOVED}`],
  // User and password of an address, with all the "@" that may stand in them.
  [/([a-z][a-z0-9+.-]*:\/\/)[^\s/"'<>]*@/gi, `$1${REMOVED}@`],
  // The query of an address: signatures are secrets.
  [/([a-z][a-z0-9+.-]*:\/\/[^\s?"'<>\\]*)\?[^\s"'<>\\]+/gi, `$1?${REMOVED}`],
  [
    /([?&](?:x-amz-[a-z-]+|x-xet-[a-z-]+|signature|policy|key-pair-id|sig|token|access_token|st|se)=)[^\s&"'\\]+/gi,
    `$1${REMOVED}`,
  ],
  [
    /(["']?[\w-]*(?:password|passwd|secret|api_?key|access_?key|private_?key)["']?\s*[:=]\s*)("[^"]*"|'[^']*'|[^\s,;}]+)/gi,
    `$1${REMOVED}`,
  ],
  // JSON web tokens, keys of clouds, private keys.
  [/\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?/g, REMOVED],
  [/\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b/g, REMOVED],
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, REMOVED],
];

/** A function that takes secrets out of a text. `more`: secrets that are in no variable, as what a token file holds. */
export function redactor(
  environment: Readonly<Record<string, string | undefined>>,
  more: readonly string[],
): (text: string) => string {
  const known = [...secretsOf(environment), ...more.map((secret) => secret.trim())].flatMap(spellings);
  // The longer ones first: a part of one may be another.
  const values = [...new Set(known)].filter(({ length }) => length >= MIN_LENGTH).sort((a, b) => b.length - a.length);
  return (text) => {
    const withoutKnown = values.reduce((rest, value) => rest.replaceAll(value, REMOVED), text);
    return PATTERNS.reduce((rest, [pattern, left]) => rest.replace(pattern, left), withoutKnown);
  };
}

/** The value of a variable as it may be shown: that a secret one is set, and the rest as it is (to be redacted as all text). */
export function shownVariable(name: string, value: string): string {
  if (isSecret(name)) return value.trim() === '' ? '' : REMOVED;
  // Where no scheme stands before it, nothing else tells a password from a host.
  return PROXY_NAME.test(name) && name.toLowerCase() !== 'no_proxy'
    ? value.replace(/^(.*:\/\/)?.*@/, `$1${REMOVED}@`)
    : value;
}

function isSecret(name: string): boolean {
  return SECRET_NAME.test(name) && !PLAIN_NAME.test(name);
}

function secretsOf(environment: Readonly<Record<string, string | undefined>>): string[] {
  return Object.entries(environment).flatMap(([name, value]) => {
    if (value === undefined) return [];
    if (isSecret(name)) return [value.trim()];
    const user = /^(?:[a-z][a-z0-9+.-]*:\/\/)?(.*)@/i.exec(value.trim())?.[1];
    if (user === undefined || (!PROXY_NAME.test(name) && !value.includes('://'))) return [];
    const password = user.slice(user.indexOf(':') + 1);
    return [user, password, decoded(user), decoded(password)];
  });
}

/** As it may stand in an address, in JSON, or in a header of Basic authentication. */
function spellings(secret: string): string[] {
  const base64 = Buffer.from(secret).toString('base64');
  return [secret, encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1), base64, base64.replace(/=+$/, '')];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
