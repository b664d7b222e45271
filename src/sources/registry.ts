/**
 * A repository of an OCI registry, whose blobs are named by the digest that an image has anyway: `oci://host[:port]/name`, by
 * https, or on loopback by http; `oci+http://...` by http wherever it is.
 *
 * Source of the paths and of what a name may be: https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md
 */

import { TmaxError } from '../errors.js';

/** Plain data, so that it can be handed to a thread. */
export interface Registry {
  /** Scheme, host and port. */
  readonly origin: string;
  /** `namespace/repository`, however many parts. */
  readonly name: string;
  /** As it was written: "oci://host/name". */
  readonly shown: string;
}

const FORM = /^oci(\+http)?:\/\/([^/?#@\s]+)\/([^?#\s]+)$/;
const PART = '[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*';
const NAME = new RegExp(`^${PART}(?:/${PART})*$`);
const MAX_NAME_LENGTH = 255;
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/** Errors: EINVAL, without repeating what may hold a password. */
export function parseRegistry(text: string): Registry {
  const [, http, host = '', name = ''] = FORM.exec(text) ?? [];
  const url = URL.canParse(`https://${host}`) ? new URL(`https://${host}`) : undefined;
  if (url === undefined || url.pathname !== '/') {
    const words = 'a registry is named by oci://host[:port]/name, or oci+http://host[:port]/name for one without TLS';
    throw new TmaxError('EINVAL', `${words}; a user and a password belong into the file of "docker login"`, {
      source: 'settings',
    });
  }
  if (!NAME.test(name) || name.length > MAX_NAME_LENGTH) {
    const words = 'lower-case letters and digits, in parts with ".", "_" or "-" between and "/" between parts';
    throw new TmaxError('EINVAL', `"${name}" is no name for a repository of a registry: ${words}`, {
      source: 'settings',
    });
  }
  const scheme = http !== undefined || LOOPBACK.test(url.hostname) ? 'http' : 'https';
  return { origin: new URL(`${scheme}://${host}`).origin, name, shown: text };
}

/** Where the registry says whether it is one, and how it wants to be asked. */
export function baseUrl({ origin }: Registry): URL {
  return new URL('/v2/', origin);
}

/** `sha256`: 64 hex digits. */
export function blobUrl({ origin, name }: Registry, sha256: string): URL {
  return new URL(`/v2/${name}/blobs/sha256:${sha256}`, origin);
}

export function uploadsUrl({ origin, name }: Registry): URL {
  return new URL(`/v2/${name}/blobs/uploads/`, origin);
}

export function manifestUrl({ origin, name }: Registry, tag: string): URL {
  return new URL(`/v2/${name}/manifests/${tag}`, origin);
}
