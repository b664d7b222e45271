/**
 * A pool whose bytes come from nginx: the mount asks a mirror (nginx, which passes questions on to a fake Hub in this
 * process), and is sent to a CDN (nginx, static files). So nothing of this process is on the way of the bytes.
 */

import { mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { FakeFile } from '../../src/demo/fake-hub-repository.js';
import { MountedPool, type MountedPoolOptions } from '../../test/support/mounted-pool.js';
import { freePort, startNginx } from '../../test/support/nginx.js';
import { type Lifetime, temporaryFolder } from '../../test/support/temporary.js';

export interface NginxPool {
  readonly pool: MountedPool;
  /** Where nginx serves a file, without a question. */
  url(file: FakeFile): string;
}

/** Mounts. `storage` holds each file under the last segment of its path; those names are distinct. */
export async function startNginxPool(
  lifetime: Lifetime,
  storage: string,
  options: Pick<MountedPoolOptions, 'files' | 'tasks' | 'args'> & {
    /** Of each connection to the CDN; without it as fast as it goes. */
    readonly bytesPerSecond?: number;
  },
): Promise<NginxPool> {
  const port = await freePort();
  const env = { HF_ENDPOINT: `http://127.0.0.1:${port}/mirror` };
  const pool = await MountedPool.prepare(lifetime, { ...options, env, hub: { basePath: '/mirror' } });
  const folder = join(temporaryFolder(lifetime), 'nginx');
  mkdirSync(folder);
  const nginx = await startNginx(
    folder,
    port,
    `server {
      listen 127.0.0.1:${port};
      location /mirror/ { proxy_pass ${pool.hub.endpoint}/; proxy_redirect ${pool.hub.cdnOrigin}/ http://127.0.0.3:${port}/; }
    }
    server {
      listen 127.0.0.3:${port};
      root ${storage};
      limit_rate ${options.bytesPerSecond ?? 0};
      # The name of a file stands in the query of its signed URL alone.
      if ($args ~ "filename%3D%22([^%]+)%22") { set $name $1; }
      location /repos/ { rewrite ^ /$name? break; }
    }`,
  );
  lifetime.teardown(() => nginx.stop());
  await pool.mount();
  return { pool, url: (file) => `http://127.0.0.3:${port}/${basename(file.path)}` };
}
