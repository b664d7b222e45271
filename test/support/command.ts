/** What a finished command left, reduced to what tests look at. */

export interface CommandResult {
  /** Undefined where a signal ended it, or it could not be started. */
  readonly exitCode: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

interface Finished {
  readonly exitCode?: number | undefined;
  readonly stdout?: unknown;
  readonly stderr?: unknown;
}

/** Waits for a command that was started with `reject: false`. */
export async function resultOf(command: PromiseLike<Finished>): Promise<CommandResult> {
  const { exitCode, stdout, stderr } = await command;
  return { exitCode, stdout: String(stdout ?? ''), stderr: String(stderr ?? '') };
}
