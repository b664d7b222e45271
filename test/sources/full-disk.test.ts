import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { TmaxError } from '../../src/errors.js';
import { transferBlob } from '../../src/sources/blob-transfer.js';
import { HttpClient } from '../../src/sources/http-client.js';
import { HubHttp } from '../../src/sources/hub-http.js';
import { HubLocation } from '../../src/sources/hub-location.js';
import { RateGovernor } from '../../src/sources/rate-governor.js';
import { hubSettings, QUICK_RETRY, startHub } from '../support/hub.js';
import { temporaryFolder } from '../support/temporary.js';
import { addressOf, imageOf, patternBytes } from '../support/transfers.js';

const BYTES = patternBytes(30_000_000);
const IMAGE = imageOf('images/a.sif', BYTES);

/** Lets every file of this process take so many bytes and no more, as a full disk would. */
async function fillDiskAfter(bytes: number, anyFile: string): Promise<() => void> {
  const handle = await open(anyFile, 'w');
  const prototype = Object.getPrototypeOf(handle);
  await handle.close();
  const { writev } = prototype;
  let left = bytes;
  prototype.writev = async function (this: unknown, buffers: Buffer[], position: number) {
    const all = Buffer.concat(buffers);
    if (left === 0) throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
    const fitting = all.subarray(0, left);
    left -= fitting.length;
    return writev.call(this, [fitting], position);
  };
  return () => {
    prototype.writev = writev;
  };
}

for (const connections of [1, 3]) {
  test.serial(
    `a full disk ends a transfer in ENOSPC, leaving a prefix that is resumed: ${connections} connection(s)`,
    async (t) => {
      const folder = await temporaryFolder(t);
      const partial = join(folder, 'partial');
      const hub = await startHub(t, [IMAGE]);
      const settings = hubSettings(hub.endpoint);
      const client = new HttpClient(settings);
      t.teardown(() => client.close());
      const http = new HubHttp({
        ...settings,
        client,
        governor: new RateGovernor(),
        maxPauseMs: QUICK_RETRY.maxPauseMs,
      });
      const fetch = () => {
        const { signal } = new AbortController();
        const location = new HubLocation(http, addressOf(hub, IMAGE));
        const options = { location, retry: QUICK_RETRY, connections, raceAfterMs: 10_000, signal };
        return transferBlob(addressOf(hub, IMAGE), partial, options);
      };
      const makeRoom = await fillDiskAfter(20_000_001, join(folder, 'other'));
      const error = await t.throwsAsync(fetch(), { instanceOf: TmaxError }).finally(makeRoom);
      t.is(error.errno, 'ENOSPC');
      t.regex(error.message, /free some room/);
      t.true((await readFile(partial)).equals(BYTES.subarray(0, 20_000_001)));
      const download = await fetch();
      t.is(download.resumedBytes, 20_000_001);
      t.is(download.sha256, IMAGE.sha256);
    },
  );
}
