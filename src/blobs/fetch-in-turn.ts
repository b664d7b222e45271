/** The fetch of one blob, in its turn among the nodes, and what follows from it for them. */

import type { BlobAddress } from '../sources/source.js';
import type { FetchTurns, Go } from './fetch-turns.js';
import type { Publisher } from './publisher.js';
import { interrupted } from './refusal.js';

export interface TurnEnvironment {
  readonly turns: FetchTurns;
  readonly publisher: Publisher;
}

/** What is told of a fetch while it waits for its turn. */
export interface TurnProgress {
  /** Who is asked, or where its turn is waited for. */
  source: string | undefined;
  /** Since when another node has had its turn, by `performance.now()`. */
  waitingSinceMs: number | undefined;
}

/** Another process, or another node, is about to bring it: to be asked for again then. */
export interface BroughtElsewhere {
  readonly lookAfterMs: number;
}

/** How often it is tried whether another process has ended its fetch of the same blob. */
const BY_ANOTHER_PROCESS: BroughtElsewhere = { lookAfterMs: 250 };

/**
 * Fetches once it is this node's turn; what came from a source is published before the turn ends. `fetch`: undefined where another
 * process of this node is at it. Errors: EINTR aborted; those of `fetch`.
 */
export async function inTurn<Result extends { readonly source: string }>(
  { turns, publisher }: TurnEnvironment,
  address: BlobAddress,
  progress: TurnProgress,
  signal: AbortSignal,
  fetch: () => Promise<Result | undefined>,
): Promise<Result | BroughtElsewhere> {
  const now = performance.now();
  const turn = await turns.next(address, now - (progress.waitingSinceMs ?? now), signal).catch((error: unknown) => {
    throw signal.aborted ? interrupted(address) : error;
  });
  if (turn.kind === 'wait') {
    progress.waitingSinceMs ??= now;
    progress.source = turn.where;
    return { lookAfterMs: turn.afterMs };
  }
  progress.waitingSinceMs = undefined;
  let ending: Go | undefined = turn;
  try {
    const result = await fetch();
    if (result === undefined) return BY_ANOTHER_PROCESS;
    if (result.source !== 'cache') {
      ending = undefined;
      publisher.publish(address, result.source, turn);
    }
    return result;
  } finally {
    ending?.end();
  }
}
