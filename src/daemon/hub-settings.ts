/** What the Hub's client, and every other source that is asked over HTTP, is told, out of the daemon's settings. */

import type { Logger } from 'pino';
import type { HubSourceSettings } from '../sources/hub-source.js';
import type { RemoteSourceSettings } from '../sources/remote-source.js';
import { version } from '../version.js';
import type { Settings } from './settings.js';
import { tokenReader } from './token.js';

/** Long enough to even out the bursts of a shared link. */
const SPEED_WINDOW_MS = 20_000;

export function hubSettings(settings: Settings, log: Logger): HubSourceSettings {
  return { ...remoteSettings(settings, log), endpoint: settings.endpoint, token: tokenReader(settings.token) };
}

export function remoteSettings(settings: Settings, log: Logger): RemoteSourceSettings {
  const { connectTimeoutMs, firstByteTimeoutMs: headersTimeoutMs, idleTimeoutMs, minBytesPerSecond } = settings;
  return {
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
