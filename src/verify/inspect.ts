/** The last level: what apptainer itself says of the image, where it is installed. */

import { resolve } from 'node:path';
import { ExecaError, execa } from 'execa';
import { messageOf, TmaxError } from '../errors.js';
import { leaveBehind } from '../scheduling.js';
import { interrupted } from './pace.js';
import { finding, invalid } from './refusal.js';
import type { Finding } from './verdict.js';

const COMMAND = 'apptainer';
/** `apptainer inspect` takes well under a second; on a machine short of memory or disk, a few. */
const INSPECT_TIMEOUT_MS = 60_000;
/** What is kept of its output. */
const MAX_OUTPUT_BYTES = 64 * 1024;
const SHOWN_CHARACTERS = 500;

export interface InspectOptions {
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number;
}

/**
 * Runs `apptainer inspect` on the file, by name, since it resolves links to open descriptors. Answers with a warning if it is not installed; throws a `Refusal` with its
 * words if it refuses the image. Errors: EINTR aborted; EIO it gave no answer in time, or was killed.
 */
export async function inspectImage(path: string, options: InspectOptions = {}): Promise<Finding[]> {
  const { signal, timeoutMs = INSPECT_TIMEOUT_MS } = options;
  try {
    const inspecting = execa(COMMAND, ['inspect', resolve(path)], {
      timeout: timeoutMs,
      stdin: 'ignore',
      all: true,
      maxBuffer: MAX_OUTPUT_BYTES,
      ...(signal === undefined ? {} : { cancelSignal: signal }),
    });
    if (inspecting.pid !== undefined) leaveBehind(inspecting.pid);
    await inspecting;
    return [];
  } catch (error) {
    if (!(error instanceof ExecaError)) throw error;
    return answerTo(error, path, timeoutMs);
  }
}

function answerTo(error: ExecaError, path: string, timeoutMs: number): Finding[] {
  if (error.isCanceled) throw interrupted();
  // It said more than is kept, which it does only of an image that it could read.
  if (error.isMaxBuffer) return [];
  if (error.code === 'ENOENT') {
    const message = 'apptainer is not installed, so it was not asked; install it or verify at level deep';
    return [finding({ code: 'apptainer-missing', field: COMMAND, found: 'absent', expected: 'installed', message })];
  }
  if (error.timedOut) {
    const message = `apptainer inspect ${path} gave no answer within ${timeoutMs} ms; try it by hand, or verify at level deep`;
    throw new TmaxError('EIO', message, { cause: error, source: 'verify' });
  }
  if (error.exitCode === undefined) {
    const message = `apptainer inspect ${path} did not run to its end (${messageOf(error)}); try it by hand`;
    throw new TmaxError('EIO', message, { cause: error, source: 'verify' });
  }
  const words = String(error.all ?? '').trim();
  throw invalid({
    code: 'apptainer-inspect',
    field: 'exit code',
    found: String(error.exitCode),
    expected: '0',
    message: `apptainer inspect refuses the image with exit code ${error.exitCode}: ${words.slice(-SHOWN_CHARACTERS)}`,
  });
}
