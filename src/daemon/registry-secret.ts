/** What `docker login` has kept for a registry, read anew whenever it changes. Passwords in helpers of the system are not looked up. */

import { readFile, stat } from 'node:fs/promises';
import * as v from 'valibot';
import { messageOf, systemErrorCode, TmaxError } from '../errors.js';
import type { Registry } from '../sources/registry.js';

/** Far more than logins for every registry there is. */
const MAX_FILE_BYTES = 1024 * 1024;
const BASE64 = /^[A-Za-z0-9+/]+=*$/;

const fileShape = v.object({ auths: v.optional(v.record(v.string(), v.object({ auth: v.optional(v.string()) }))) });

/**
 * A function that gives `user:password` in base64, or undefined where nobody has logged in. `file`: as `$DOCKER_CONFIG/config.json`;
 * format: https://docs.docker.com/reference/cli/docker/login/. Errors: EACCES the file can't be read, or is none.
 */
export function registrySecret(file: string, { origin }: Registry): () => Promise<string | undefined> {
  const { host } = new URL(origin);
  let known: { readonly secret: string | undefined; readonly modifiedMs: number } | undefined;
  return async () => {
    try {
      const { mtimeMs, size } = await stat(file);
      if (known?.modifiedMs === mtimeMs) return known.secret;
      if (size > MAX_FILE_BYTES) throw new Error(`it has ${size} bytes`);
      const { auths = {} } = v.parse(fileShape, JSON.parse(await readFile(file, 'utf8')));
      const secret = [host, `https://${host}`, `https://${host}/v2/`].map((key) => auths[key]?.auth).find(Boolean);
      known = { secret: secret !== undefined && BASE64.test(secret) ? secret : undefined, modifiedMs: mtimeMs };
      return known.secret;
    } catch (cause) {
      const code = systemErrorCode(cause);
      if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
      // What JSON.parse says of it may quote it.
      const reason = code ?? (cause instanceof SyntaxError ? 'it is no JSON' : messageOf(cause));
      throw new TmaxError('EACCES', `the logins for registries in ${file} can't be read (${reason}): mend that file`, {
        source: 'settings',
      });
    }
  };
}
