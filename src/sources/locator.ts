/** The kinds of HTTP sources, by what a fetch thread has to know of each; see `blob-location.ts` for how another one is made. */

import type { BlobLocation } from './blob-location.js';
import { DragonflyLocation, dragonflyHeaders } from './dragonfly.js';
import type { HttpClient } from './http-client.js';
import { HubHttp } from './hub-http.js';
import { HubLocation } from './hub-location.js';
import type { RateGovernor } from './rate-governor.js';
import type { Registry } from './registry.js';
import { RegistryLocation } from './registry-location.js';
import { RegistryLogin } from './registry-login.js';
import type { BlobAddress } from './source.js';
import { SourceHttp } from './source-http.js';
import { TemplateLocation } from './template-location.js';
import { parseUrlTemplate } from './url-template.js';

/** Plain data, so that it can be handed to a thread. */
export type LocatorSettings =
  /** `endpoint`: as HF_ENDPOINT has it. */
  | { readonly kind: 'hub'; readonly endpoint: string }
  /** `name`: of the source, for messages. */
  | { readonly kind: 'template' | 'dragonfly'; readonly name: string; readonly template: string }
  | { readonly kind: 'registry'; readonly registry: Registry };

export interface LocatorTools {
  readonly client: HttpClient;
  readonly governor: RateGovernor;
  /** Longest pause that a server can impose. */
  readonly maxPauseMs: number;
}

/** Finds the blobs of one source; lives as long as its thread. */
export interface Locator {
  /** `secret`: what the source's owner gives it to prove itself by, of this moment (the Hub's token). Errors: EINVAL a blob that can't be there. */
  locate(blob: BlobAddress, secret: () => Promise<string | undefined>): BlobLocation;
}

/** Errors: EINVAL an endpoint or template that is none. */
export function createLocator(settings: LocatorSettings, tools: LocatorTools): Locator {
  switch (settings.kind) {
    case 'hub':
      return {
        locate: (blob, token) => new HubLocation(new HubHttp({ ...tools, endpoint: settings.endpoint, token }), blob),
      };
    case 'template': {
      const template = parseUrlTemplate(settings.template);
      const http = new SourceHttp(tools);
      return { locate: (blob) => new TemplateLocation(http, settings.name, template, blob) };
    }
    case 'registry': {
      const { registry } = settings;
      const http = new SourceHttp(tools);
      const parts = { registry, http, login: new RegistryLogin(registry, http, 'pull') };
      return { locate: (blob, secret) => new RegistryLocation(parts, blob, secret) };
    }
    case 'dragonfly': {
      const template = parseUrlTemplate(settings.template);
      const http = new SourceHttp(tools);
      return {
        locate: (blob) => new DragonflyLocation(http, settings.name, template, blob, dragonflyHeaders(blob)),
      };
    }
  }
}
