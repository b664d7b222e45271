/** What the Hub's client is told, out of the daemon's settings. */

import type { Logger } from 'pino';
import type { HubSourceSettings } from '../sources/hub-source.js';
import { version } from '../version.js';
import type { Settings } from './settings.js';
import { tokenReader } from './token.js';

const CONNECT_TIMEOUT_MS = 10_000;
/** A busy resolver takes seconds, never half a minute. */
const HEADERS_TIMEOUT_MS = 30_000;
/** A body that stands still this long is asked for anew, from where it stopped. */
const IDLE_TIMEOUT_MS = 20_000;

export function hubSettings(settings: Settings, log: Logger): HubSourceSettings {
  return {
    endpoint: settings.endpoint,
    token: tokenReader(settings.token),
    userAgent: `tmaxfs/${version}`,
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    headersTimeoutMs: HEADERS_TIMEOUT_MS,
    idleTimeoutMs: IDLE_TIMEOUT_MS,
    proxy: settings.proxy,
    caFile: settings.caFile,
    log,
  };
}
