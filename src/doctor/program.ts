/** Programs of the system, run with a deadline and little memory. */

import { execa } from 'execa';

export interface ProgramResult {
  /** Undefined where it could not be run, was killed, or did not end in time. */
  readonly exitCode: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
  /** It did not end in time. */
  readonly isLate: boolean;
  /** There is no such program. */
  readonly isMissing: boolean;
}

const MAX_OUTPUT_BYTES = 256 * 1024;

/** Runs a program to its end; the exit code is for the caller to judge. A child that can't be killed is not waited for. */
export async function runProgram(
  file: string,
  args: readonly string[],
  { timeoutMs, env }: { readonly timeoutMs: number; readonly env?: Readonly<Record<string, string>> },
): Promise<ProgramResult> {
  const late: ProgramResult = { exitCode: undefined, stdout: '', stderr: '', isLate: true, isMissing: false };
  const child = execa(file, args, {
    reject: false,
    stdin: 'ignore',
    maxBuffer: MAX_OUTPUT_BYTES,
    killSignal: 'SIGKILL',
    ...(env === undefined ? {} : { env }),
  });
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<ProgramResult>((resolve) => {
    timer = setTimeout(() => {
      child.kill('SIGKILL');
      resolve(late);
    }, timeoutMs);
  });
  const done = child.then(({ exitCode, stdout, stderr, code }) => ({
    exitCode,
    stdout: String(stdout ?? ''),
    stderr: String(stderr ?? ''),
    isLate: false,
    isMissing: code === 'ENOENT',
  }));
  return Promise.race([done, deadline]).finally(() => clearTimeout(timer));
}
