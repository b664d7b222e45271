/** Programs that use a mount: small Python scripts, run as one of the test's users, that report in JSON lines. */

import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { execa } from 'execa';
import { type Defer, identity, type User } from './mount-client.js';

const SCRIPT_LIMIT_MS = 200_000;

/** What every script starts with. `out` prints one JSON line; `errno_of` runs a call and names its errno, or None. */
const PRELUDE = `
import os, sys, json, errno, signal, hashlib
args = sys.argv[1:]
def out(value):
    print(json.dumps(value), flush=True)
def errno_of(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return None
`;

/** Runs a script to its end and returns what it reported with `out`, parsed. Fails with its stderr. */
export async function python(user: User, script: string, ...args: readonly string[]): Promise<unknown[]> {
  const { stdout } = await execa('python3', ['-c', PRELUDE + script, ...args], {
    timeout: SCRIPT_LIMIT_MS,
    ...identity(user),
  });
  return stdout === '' ? [] : stdout.split('\n').map((line): unknown => JSON.parse(line));
}

/** As `python`, for scripts that report exactly one thing. */
export async function pythonValue(user: User, script: string, ...args: readonly string[]): Promise<unknown> {
  const [value] = await python(user, script, ...args);
  return value;
}

/** A script that goes on running: its reports are awaited one by one. It is killed afterwards if it still runs. */
export class RunningPython {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #exit: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;

  constructor(defer: Defer, user: User, script: string, ...args: readonly string[]) {
    this.#process = spawn('python3', ['-c', PRELUDE + script, ...args], {
      stdio: ['pipe', 'pipe', 'inherit'],
      ...identity(user),
    });
    const { stdout } = this.#process;
    if (stdout === null) throw new Error('no standard output');
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
    this.#exit = new Promise((resolve) => {
      this.#process.once('exit', (code, signal) => resolve({ code, signal }));
    });
    defer(async () => {
      this.#process.kill('SIGKILL');
      await this.#exit;
    });
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  /** The next report; undefined after the last. */
  async report(): Promise<unknown> {
    const { value, done } = await this.#lines.next();
    return done === true ? undefined : JSON.parse(value);
  }

  /** Sends a line to its standard input. */
  tell(line: string): void {
    this.#process.stdin?.write(`${line}\n`);
  }

  signal(name: NodeJS.Signals): void {
    this.#process.kill(name);
  }

  /** Resolves when it has ended. */
  exit(): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
    return this.#exit;
  }
}

/** How long `wait` took, in milliseconds. */
export async function timed(wait: Promise<unknown>): Promise<number> {
  const start = performance.now();
  await wait;
  return performance.now() - start;
}
