/**
 * How long a source goes on where nothing comes.
 *
 * - `patient`: nobody else can be asked.
 * - `brief`: another source can, and one that does not answer soon is to give up.
 * - `trial`: as brief, and the first failure is the answer, since the source has failed of late.
 */

import type { HttpSettings } from './http-client.js';
import {
  BRIEF_CONNECT_MS,
  BRIEF_HEADERS_MS,
  BRIEF_IDLE_MS,
  RACE_AFTER_IDLE_SHARE,
  type RetrySettings,
} from './limits.js';

export type Patience = 'patient' | 'brief' | 'trial';

/** How long what is waited for. */
export interface PatienceSettings {
  readonly http: HttpSettings;
  readonly retry: RetrySettings;
  readonly raceAfterMs: number;
}

/** `http` and `retry` of those that are patient; those that are not have its deadlines where these are shorter than their own. */
export function settingsByPatience(
  http: HttpSettings,
  retry: RetrySettings,
  briefRetry: RetrySettings,
): Readonly<Record<Patience, PatienceSettings>> {
  const brief = {
    ...http,
    connectTimeoutMs: Math.min(http.connectTimeoutMs, BRIEF_CONNECT_MS),
    headersTimeoutMs: Math.min(http.headersTimeoutMs, BRIEF_HEADERS_MS),
    idleTimeoutMs: Math.min(http.idleTimeoutMs, BRIEF_IDLE_MS),
  };
  return {
    patient: { http, retry, raceAfterMs: http.idleTimeoutMs * RACE_AFTER_IDLE_SHARE },
    brief: { http: brief, retry: briefRetry, raceAfterMs: brief.idleTimeoutMs * RACE_AFTER_IDLE_SHARE },
    trial: {
      http: brief,
      retry: { ...briefRetry, maxAttemptsWithoutProgress: 1, maxFailures: 1 },
      // No second request runs beside one that is silent: that one has failed by then.
      raceAfterMs: 2 * (brief.connectTimeoutMs + brief.headersTimeoutMs + brief.idleTimeoutMs),
    },
  };
}
