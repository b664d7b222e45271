/** What a daemon in the background tells its starter, over the channel between them: how it goes on, then how it ended. */

import * as v from 'valibot';

export const startReportShape = v.variant('kind', [
  /** Something that keeps it waiting. */
  v.object({ kind: v.literal('progress'), words: v.string() }),
  v.object({ kind: v.literal('ready'), summary: v.string() }),
  v.object({ kind: v.literal('failed'), reason: v.string() }),
]);
export type StartReport = v.InferOutput<typeof startReportShape>;

/** Tells the starter, where there is one that still listens. */
export async function reportStart(report: StartReport): Promise<void> {
  const { send } = process;
  if (send === undefined || !process.connected) return;
  await new Promise<void>((resolve) => {
    send.call(process, report, () => resolve());
  });
}
