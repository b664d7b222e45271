import test from 'ava';
import { TmaxError } from '../../src/errors.js';
import { hostArchitecture } from '../../src/verify/architecture.js';
import { blobOf, holds, setUp } from '../support/blob-cache.js';

const ANY = { served: 'any', host: 'amd64' } as const;
const HOST = { served: 'host', host: 'amd64' } as const;

test('an image for another machine is served, with one warning, and its architecture is known after a restart', async (t) => {
  const first = await setUp(t, { architecture: ANY });
  first.verdicts.architecture = 'riscv64';
  const blob = blobOf('a');
  first.add(blob);
  for (const _ of [1, 2, 3]) (await first.open(blob)).release();
  const warnings = first.lines.filter(({ level, architecture }) => level === 40 && architecture === 'riscv64');
  t.is(warnings.length, 1);
  t.regex(String(warnings[0]?.['msg']), /a\.sif is an image for riscv64.*amd64/);
  await first.cache.close();
  const second = await setUp(t, { root: first.root, architecture: ANY });
  t.like(second.cache.state(blob.address.sha256), { state: 'ready', architecture: 'riscv64', refusal: undefined });
});

test('with --arch host it is refused with words, cold and warm, fetched once, and served as soon as any will do', async (t) => {
  const { root, source, add, open, verdicts, cache } = await setUp(t, { architecture: HOST });
  verdicts.architecture = 'arm64';
  const [foreign, own] = [blobOf('a'), blobOf('b')];
  [foreign, own].forEach(add);
  for (const round of ['cold', 'warm']) {
    const error = await t.throwsAsync(open(foreign), { instanceOf: TmaxError });
    t.is(error?.errno, 'EBADMSG', round);
    t.regex(error?.message ?? '', /a\.sif is an image for arm64.*this machine is amd64.*--arch any/, round);
  }
  t.deepEqual(source.downloads, ['a.sif']);
  const state = cache.state(foreign.address.sha256);
  t.regex((state.state === 'ready' && state.refusal) || '', /--arch any/);
  t.is(cache.statistics().use.leasedBlobs, 0);
  verdicts.architecture = 'amd64';
  t.true(holds(await open(own), own));
  await cache.close();
  const anyone = await setUp(t, { root, architecture: ANY });
  t.true(holds(await anyone.open(foreign), foreign));
  t.deepEqual(anyone.source.downloads, []);
});

test('this machine has the name that SIF gives it', (t) => {
  t.is(hostArchitecture(), process.arch === 'x64' ? 'amd64' : process.arch);
});
