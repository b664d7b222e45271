/** A configuration of docs/cluster as a test runs it: exactly that file, but for its places. */

import { readFileSync } from 'node:fs';
import { packagePath } from './paths.js';

/** `places`: what stands in the file, and what stands there in the test; each has to be in it. */
export function nginxFile(name: string, places: Readonly<Record<string, string>>): string {
  let text = readFileSync(packagePath('docs', 'cluster', name), 'utf8');
  for (const [from, to] of Object.entries(places)) {
    if (!text.includes(from)) throw new Error(`${name} has no "${from}"`);
    text = text.replaceAll(from, to);
  }
  return text;
}

/** The read-through cache, before a fake Hub and its storage, in a folder. `listen`: as nginx takes it. */
export function hubCacheFile(
  folder: string,
  listen: string,
  hub: { readonly endpoint: string; readonly cdnOrigin: string },
  cacheFolder = `${folder}/cache`,
): string {
  const pattern = hub.cdnOrigin.replaceAll('.', '\\.');
  return nginxFile('nginx-hub-cache.conf', {
    'https://huggingface.co': hub.endpoint,
    '^https://([a-z0-9-]+\\.)*(hf\\.co|huggingface\\.co)/': `^${pattern}/`,
    'listen 80;': `listen ${listen};`,
    '/run/nginx-tmaxfs': `${folder}/nginx-tmaxfs`,
    '/var/cache/nginx': cacheFolder,
    'min_free=20g ': '',
  });
}
