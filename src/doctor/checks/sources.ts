/**
 * Each place of `--source` and `--publish` besides the Hub: whether it is there, by the smallest request that its kind takes. Only of a URL it
 * is looked whether it has an image, since every URL that is wrong looks like one without images. A folder of `--publish` must be writable,
 * too; nothing is written there.
 */

import { pino } from 'pino';
import { remoteSettings } from '../../daemon/hub-settings.js';
import type { Settings } from '../../daemon/settings.js';
import { type SourceChoice, sourceName } from '../../daemon/source-choices.js';
import { wordsOf } from '../../errors.js';
import { HttpClient, type HttpReply } from '../../sources/http-client.js';
import { RateGovernor } from '../../sources/rate-governor.js';
import { baseUrl } from '../../sources/registry.js';
import type { BlobAddress } from '../../sources/source.js';
import { SourceHttp } from '../../sources/source-http.js';
import { parseUrlTemplate, type UrlTemplate } from '../../sources/url-template.js';
import { error, note, ok, type Remark, warning } from '../finding.js';
import type { Machine } from '../machine.js';
import { runProgram } from '../program.js';
import { sampleImages } from '../sample-images.js';
import { connectionFailure } from './proxy.js';

const CONNECT_LIMIT_MS = 4_000;
const ANSWER_LIMIT_MS = 5_000;
/** A folder of a network's disk answers late where it is busy. */
const FOLDER_LIMIT_MS = 5_000;
/** For one byte of an image, from a server that has just answered. */
const IMAGE_LIMIT_MS = 2_500;
/** An image that there is not. */
const NO_IMAGE = {
  repository: 'tmaxfs/doctor',
  commit: '0'.repeat(40),
  path: 'tmaxfs-doctor/no-such-image.sif',
  sha256: '0'.repeat(64),
  sizeBytes: 1,
};

export async function sources(machine: Machine, signal: AbortSignal): Promise<readonly Remark[]> {
  const { settings } = machine;
  const others = settings.sources.filter(({ kind }) => kind !== 'hub');
  if (others.length === 0) return [ok('images come from the Hub alone')];
  const wantsImages = !settings.offline && others.some(({ kind }) => kind === 'template');
  const images = wantsImages ? sampleImages(settings, signal) : Promise.resolve([]);
  const looked = others.map(async (choice) => {
    if (settings.offline && choice.kind !== 'directory') {
      return note(`${sourceName(choice)} was not asked`, 'this is offline, as a mount would be');
    }
    return look(choice, settings, images, signal);
  });
  return Promise.all(looked);
}

async function look(
  choice: SourceChoice,
  settings: Settings,
  images: Promise<readonly BlobAddress[]>,
  signal: AbortSignal,
): Promise<Remark> {
  const name = sourceName(choice);
  switch (choice.kind) {
    case 'hub':
      return ok('the Hub has a check of its own');
    case 'directory':
      return lookAtFolder(name, choice.folder, settings);
    case 'dragonfly': {
      const failure = await connectionFailure(new URL(choice.proxy));
      if (failure === undefined) return ok(`${name} answers`);
      return unreachable(
        settings,
        `${name} leads nowhere: ${failure}`,
        'start dfdaemon, or name the port of its proxy',
      );
    }
    case 'registry': {
      const url = baseUrl(choice.registry);
      return judge(settings, name, url, signal, [200, 401], 'it is no registry of the second version (/v2/)');
    }
    case 'template': {
      const template = parseUrlTemplate(choice.template);
      const words = 'so it says nothing by it, or is broken';
      const remark = await judge(settings, name, template.urlOf(NO_IMAGE), signal, [401, 403, 404, 410], words);
      return remark.level === 'ok' ? lookForImages(remark, template, settings, await images, signal) : remark;
    }
  }
}

async function lookAtFolder(name: string, folder: string, settings: Settings): Promise<Remark> {
  const test = (which: string) => runProgram('test', [which, folder], { timeoutMs: FOLDER_LIMIT_MS });
  const { exitCode, isLate } = await test('-d');
  if (exitCode !== 0) {
    const what = isLate
      ? `${name} does not answer within ${FOLDER_LIMIT_MS / 1000} s`
      : `${name} is no folder that this user can see`;
    return error(what, 'a mount does not start without it', `ls -ld ${folder}; mount what is to lie there`);
  }
  if ((await test('-x')).exitCode !== 0) {
    const isAlone = settings.sources.length === 1;
    const why = isAlone ? 'images come from there alone' : 'no image comes from there; the next source stands in';
    return (isAlone ? error : warning)(`${name} can't be entered by this user`, why, `ls -ld ${folder}; chmod a+x`);
  }
  const isPublished = settings.publish.map(sourceName).includes(name);
  if (!isPublished || (await test('-w')).exitCode === 0) return ok(`${name} is there`);
  const why = 'it is read, and nothing is published to it: each node fetches for itself';
  return warning(`${name} can't be written by this user`, why, `ls -ld ${folder}; chmod 2775 and a group, or 1777`);
}

/** One GET. `expected`: what it may answer for something that it does not have, or does not give to strangers. */
async function judge(
  settings: Settings,
  name: string,
  url: URL,
  signal: AbortSignal,
  expected: readonly number[],
  otherwise: string,
): Promise<Remark> {
  const startedAtMs = performance.now();
  let reply: HttpReply;
  try {
    reply = await get(settings, url, signal);
  } catch (thrown) {
    return unreachable(
      settings,
      `${name}: ${wordsOf(thrown)}`,
      `curl -sS -o /dev/null -w '%{http_code}\\n' ${url.origin}`,
    );
  }
  const tookMs = Math.round(performance.now() - startedAtMs);
  if (expected.includes(reply.status)) return ok(`${name} answers in ${tookMs} ms`);
  const what = `${name} answers ${reply.status} for what it can't have: ${otherwise}`;
  return warning(what, 'what is not right there costs an open some seconds, until it is left alone', null);
}

/** Asks a server that answers for one image of each pool, the first byte of it. `answering`: what is known of it. */
async function lookForImages(
  answering: Remark,
  template: UrlTemplate,
  settings: Settings,
  images: readonly BlobAddress[],
  called: AbortSignal,
): Promise<Remark> {
  const { what } = answering;
  if (images.length === 0) return ok(`${what}; it was asked for no image, since no catalog is known here yet`);
  const signal = AbortSignal.any([called, AbortSignal.timeout(IMAGE_LIMIT_MS)]);
  const looked = images.map(async (image) => {
    const answer = await get(settings, template.urlOf(image), signal).then(({ status }) => status, wordsOf);
    return answer === 200 || answer === 206 ? [] : [`${image.path} of ${image.repository} (${answer})`];
  });
  const missing = (await Promise.all(looked)).flat();
  if (missing.length === 0) return ok(`${what}, and has ${images.map(({ path }) => path).join(', ')}`);
  const why =
    'where it is to have all images, something in its URL is not right; where it has some, this is as it should be';
  return warning(`${what}, but does not have ${missing.join(', ')}`, why, null);
}

async function get(settings: Settings, url: URL, signal: AbortSignal): Promise<HttpReply> {
  const client = new HttpClient({
    ...remoteSettings(settings, pino({ level: 'silent' })),
    connectTimeoutMs: CONNECT_LIMIT_MS,
    headersTimeoutMs: ANSWER_LIMIT_MS,
    idleTimeoutMs: ANSWER_LIMIT_MS,
  });
  const http = new SourceHttp({ client, governor: new RateGovernor(), maxPauseMs: 0 });
  try {
    const headers = { range: 'bytes=0-0' };
    return (await http.get({ url, kind: 'storage', headers, signal, onReply: () => undefined })).reply;
  } finally {
    await client.close();
  }
}

/** Where there are others, they stand in. */
function unreachable(settings: Settings, what: string, remedy: string): Remark {
  if (settings.sources.length === 1) return error(what, 'images come from there alone', remedy);
  return warning(what, 'an open loses seconds with it, until it is left alone; the next source stands in', remedy);
}
