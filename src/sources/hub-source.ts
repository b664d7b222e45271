/** The Hub as a source of blobs. */

import { type HubSettings, parseEndpoint } from './hub-settings.js';
import { RateGovernor } from './rate-governor.js';
import { RemoteSource, type RemoteSourceSettings } from './remote-source.js';

export interface HubSourceSettings extends HubSettings, RemoteSourceSettings {}

export class HubSource extends RemoteSource {
  /** No thread is started before the first download. Errors: EINVAL endpoint, proxy or certificate file. */
  constructor(settings: HubSourceSettings, governor = new RateGovernor()) {
    const { endpoint, token } = settings;
    parseEndpoint(endpoint);
    super({ name: 'hub', locator: { kind: 'hub', endpoint }, secret: token }, settings, governor);
  }
}
