/**
 * What the HTTP proxy of a Dragonfly daemon (dfdaemon) is told, so that a blob is one task for all nodes, whatever address it has.
 *
 * The proxy takes a GET of a whole URL, http or https, and fetches it by itself, from other peers or from where it is: no tunnel, no
 * certificate of its own. Redirects it follows by itself. Source of the contract: https://github.com/dragonflyoss/client, version 1.5.1,
 * `dragonfly-client/src/proxy/header.rs` (names), `proxy/mod.rs` (`handler`, `make_download_task_request`, `make_response_headers`),
 * `proxy/task.rs` (the task's id), `resource/piece.rs` (lengths of pieces).
 */

import type { TmaxError } from '../errors.js';
import { TransientFailure } from './failure.js';
import type { HttpReply } from './http-client.js';
import type { BlobAddress } from './source.js';
import { TemplateLocation } from './template-location.js';

/**
 * Each piece that some node fetches from the Hub costs a hit of its resolver, which are what the Hub counts; 4 MiB, the proxy's own
 * choice for most images, would be some thirty for each.
 */
const PIECE_LENGTH = '32mib';

export function dragonflyHeaders({ sha256 }: BlobAddress): Readonly<Record<string, string>> {
  return {
    // Distributed among peers whether or not a rule of the proxy names the address.
    'x-dragonfly-use-p2p': 'true',
    // In the place of address, tag, application and length of pieces: the same for any address of the same bytes.
    'x-dragonfly-content-for-calculating-task-id': `sha256:${sha256}`,
    'x-dragonfly-piece-length': PIECE_LENGTH,
    // For its statistics alone.
    'x-dragonfly-application': 'tmaxfs',
  };
}

export class DragonflyLocation extends TemplateLocation {
  /** What the proxy says of itself (its limit, its block list, a fault) says nothing of the blob. */
  override async refusal(reply: HttpReply): Promise<TmaxError> {
    const errorType = reply.header('x-dragonfly-error-type');
    if (errorType !== 'proxy' && errorType !== 'dfdaemon') return super.refusal(reply);
    const message = `${this.name} answers ${reply.status} by itself (${errorType}) for ${this.path}`;
    return new TransientFailure('EHOSTUNREACH', message);
  }
}
