/** Level `inspect`, with stand-ins for apptainer that do what it does, or fails to do. */

import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { TmaxError } from '../../src/errors.js';
import { inspectImage } from '../../src/verify/inspect.js';
import type { Verdict } from '../../src/verify/verdict.js';
import { verifyImage } from '../../src/verify/verify.js';
import { goodImage, goodImages } from '../support/images.js';
import { temporaryFolder } from '../support/tools.js';

const folder = temporaryFolder();
const systemPath = process.env['PATH'] ?? '';
const path = goodImage('tiny-gzip');

test.after.always(() => rmSync(folder, { recursive: true }));

/** The only apptainer from here on is this shell script; without one there is none. */
function install(script?: string): void {
  const command = join(folder, 'apptainer');
  rmSync(command, { force: true });
  // A PATH without apptainer: everything the stand-ins need is built into the shell, or called by its full name.
  process.env['PATH'] = folder;
  if (script === undefined) return;
  writeFileSync(command, `#!/bin/sh\n${script}\n`);
  chmodSync(command, 0o755);
}

async function inspected(): Promise<Verdict> {
  const image = goodImages.find(({ name }) => name === 'tiny-gzip');
  if (image === undefined) throw new Error('tiny-gzip is no longer a good image');
  return await verifyImage(path, image, 'inspect');
}

test.serial('an image that apptainer can inspect is valid', async (t) => {
  install(`echo "$1 $2" > ${folder}/called; echo "org.label-schema.version: 1.0"`);
  t.deepEqual(await inspected(), { outcome: 'valid', level: 'inspect', architecture: 'amd64', warnings: [] });
  t.is(readFileSync(join(folder, 'called'), 'utf8'), `inspect ${path}\n`);
});

test.serial('an image that apptainer refuses is invalid, with its words', async (t) => {
  install('echo "FATAL: could not open image: no such partition" >&2; exit 255');
  const verdict = await inspected();
  t.like(verdict, { outcome: 'invalid', level: 'inspect', finding: { code: 'apptainer-inspect', found: '255' } });
  t.regex(verdict.outcome === 'valid' ? '' : verdict.finding.message, /no such partition/);
});

test.serial('without apptainer the image is valid, with a warning', async (t) => {
  install();
  t.like(await inspected(), { outcome: 'valid', level: 'inspect', warnings: [{ code: 'apptainer-missing' }] });
});

test.serial('an apptainer that hangs is ended at its deadline, and that is not the fault of the image', async (t) => {
  install('exec /bin/sleep 60');
  const started = performance.now();
  const error = await t.throwsAsync(inspectImage(path, { timeoutMs: 200 }));
  t.true(error instanceof TmaxError && error.errno === 'EIO');
  t.true(performance.now() - started < 10_000);
});

test.serial('an apptainer that is killed is no verdict on the image', async (t) => {
  install('kill -9 $$');
  const error = await t.throwsAsync(inspectImage(path));
  t.true(error instanceof TmaxError && error.errno === 'EIO');
});

test.serial('an abort ends apptainer', async (t) => {
  install(`echo $$ > ${folder}/pid; exec /bin/sleep 60`);
  const controller = new AbortController();
  const running = inspectImage(path, { signal: controller.signal });
  setTimeout(() => controller.abort(), 100);
  const error = await t.throwsAsync(running);
  t.true(error instanceof TmaxError && error.errno === 'EINTR');
});

test.serial('an apptainer that never stops talking is cut short', async (t) => {
  install('while :; do echo "all work and no play makes a verbose program"; done');
  t.deepEqual(await inspectImage(path, { timeoutMs: 10_000 }), []);
});

test.after.always(() => {
  process.env['PATH'] = systemPath;
});
