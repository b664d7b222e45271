import test from 'ava';
import { pino } from 'pino';
import { readSettings } from '../../src/daemon/settings.js';
import { logSettings } from '../../src/daemon/settings-log.js';
import { MOUNT_WORDS } from '../support/mount-words.js';

/** The first line of the log, and its words. */
function firstLine(environment: Record<string, string>): { readonly line: string; readonly words: string } {
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => lines.push(line) });
  logSettings(readSettings(MOUNT_WORDS, { HOME: '/home/u', ...environment }), log);
  const [line = ''] = lines;
  return { line, words: (JSON.parse(line) as { msg: string }).msg };
}

test('the words of a start tell where everything is to come from', (t) => {
  t.is(firstLine({}).words, 'starting to mount org/pool@main on /tmax, from https://huggingface.co');
  t.regex(firstLine({ HF_HUB_OFFLINE: '1' }).words, /, offline$/);
  t.regex(firstLine({ HF_ENDPOINT: 'https://mirror.example/hf' }).words, /, from https:\/\/mirror\.example\/hf$/);
});

test('a proxy that a launcher has left is named, without its password, where it is used', (t) => {
  const proxy = { HTTPS_PROXY: 'http://someone:secret@proxy.example:3128' };
  const { line, words } = firstLine(proxy);
  t.regex(words, /, from https:\/\/huggingface\.co through HTTPS_PROXY http:\/\/proxy\.example:3128$/);
  t.false(line.includes('secret'));
  t.regex(firstLine({ ...proxy, NO_PROXY: 'huggingface.co' }).words, /, from https:\/\/huggingface\.co$/);
  t.regex(firstLine({ HTTPS_PROXY: 'http://[' }).words, /, from https:\/\/huggingface\.co$/);
});
