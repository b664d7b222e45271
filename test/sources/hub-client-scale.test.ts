import test from 'ava';
import { HubClient, type ListedFile } from '../../src/sources/hub-client.js';
import { headOf, hubSettings, QUICK_RETRY, REPOSITORY, startHub } from '../support/hub.js';
import { POOL_IMAGES, poolFiles, poolTaskMapJson } from '../support/pool-scale.js';

test('a listing of the pool at scale takes 17 requests, sizes and digests included, and its task map one more', async (t) => {
  const files = poolFiles();
  const hub = await startHub(t, files);
  const client = new HubClient(hubSettings(hub.endpoint), QUICK_RETRY);
  t.teardown(() => client.close());
  const byPath = new Map<string, ListedFile>();
  for await (const file of client.listFiles(REPOSITORY, headOf(hub))) byPath.set(file.path, file);
  t.is(hub.requests.all.length, 17);
  t.is(byPath.size, POOL_IMAGES + 1);
  t.true(files.every((file) => byPath.get(file.path)?.sizeBytes === file.sizeBytes));
  t.true(files.every((file) => byPath.get(file.path)?.sha256 === (file.lfs ? file.sha256 : undefined)));
  const expected = byPath.get('task_to_blob.json');
  t.truthy(expected);
  const options = { maxBytes: 16 * 1024 * 1024, ...(expected === undefined ? {} : { expected }) };
  const body = await client.readSmallFile(REPOSITORY, headOf(hub), 'task_to_blob.json', options);
  t.true(body.equals(poolTaskMapJson()));
  t.is(hub.requests.filter(({ url }) => url.includes('/resolve/')).length, 1);
});
