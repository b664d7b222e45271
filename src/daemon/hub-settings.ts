/** What the Hub's client is told, out of the daemon's settings. */

import type { Logger } from 'pino';
import type { HubSourceSettings } from '../sources/hub-source.js';
import { version } from '../version.js';
import type { Settings } from './settings.js';
import { tokenReader } from './token.js';

/** Long enough to even out the bursts of a shared link. */
const SPEED_WINDOW_MS = 20_000;

export function hubSettings(settings: Settings, log: Logger): HubSourceSettings {
  const { connectTimeoutMs, firstByteTimeoutMs: headersTimeoutMs, idleTimeoutMs, minBytesPerSecond } = settings;
  return {
    endpoint: settings.endpoint,
    token: tokenReader(settings.token),
    userAgent: `tmaxfs/${version}`,
    connectTimeoutMs,
    headersTimeoutMs,
    idleTimeoutMs,
    minBytesPerSecond,
    speedWindowMs: SPEED_WINDOW_MS,
    connectionsPerBlob: settings.connections,
    proxy: settings.proxy,
    caFile: settings.caFile,
    log,
  };
}
