/**
 * A site: machines with networks, mounts and processes of their own, on one switch, that reach this process at two addresses.
 * They are namespaces of the kernel, and each lives as long as its first process, which reads a pipe of this one: when this
 * process ends, however it does, they all end with everything in them, and the kernel takes away what was made of links and mounts.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { execa, execaSync } from 'execa';
import { type CommandResult, resultOf } from './command.js';
import type { Lifetime } from './temporary.js';

const COMMAND_TIMEOUT_MS = 90_000;
/** The last number of the addresses: those of this process, and of the first machine. */
const [HUB, CDN, FIRST_MACHINE] = [1, 2, 10];

/** Whether machines can be made here: it takes root, and the programs of util-linux and iproute2. */
export const canMakeSite =
  process.getuid?.() === 0 &&
  !execaSync('unshare', ['--net', '--mount', '--pid', '--fork', '--mount-proc', 'ip', 'link'], { reject: false })
    .failed;

/**
 * Lets go of the mounts of other tests, of which it has been given copies: their daemons would live as long as this machine. Then says
 * that it is there, and reads until this process has ended.
 */
const FIRST_PROCESS = `
  while read -r _ place _; do
    case "$place" in ${tmpdir()}/tmaxfs-*) umount --lazy "$place" ;; esac
  done </proc/mounts
  echo
  exec cat`;

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

/** A namespace of each kind. */
export class Machine {
  readonly #holder: ChildProcess;

  private constructor(
    readonly pid: number,
    /** IPv4, in the site's network. */
    readonly address: string,
    holder: ChildProcess,
  ) {
    this.#holder = holder;
  }

  /** For sites. */
  static async start(address: string): Promise<Machine> {
    const words = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c', FIRST_PROCESS];
    const holder = spawn('unshare', words, { stdio: ['pipe', 'pipe', 'ignore'] });
    const ready = await Promise.race([once(holder.stdout, 'data'), once(holder, 'exit').then(() => undefined)]);
    if (ready === undefined) throw new Error('no namespaces can be made here');
    const children = readFileSync(`/proc/${holder.pid}/task/${holder.pid}/children`, 'utf8');
    return new Machine(Number(children), address, holder);
  }

  /** Words that start a program in it. */
  words(words: readonly string[]): string[] {
    return ['nsenter', '--target', String(this.pid), '--net', '--mount', '--pid', ...words];
  }

  /** Runs a program to its end; its exit code is for the caller to judge. */
  run(words: readonly string[], { env = {}, timeoutMs = COMMAND_TIMEOUT_MS }: RunOptions = {}): Promise<CommandResult> {
    const [file = '', ...args] = this.words(words);
    const options = { env: { PATH: process.env['PATH'] ?? '', ...env }, extendEnv: false, reject: false } as const;
    return resultOf(execa(file, args, { ...options, timeout: timeoutMs }));
  }

  /** As `run`, but that it throws where the program fails. */
  async must(words: readonly string[], options: RunOptions = {}): Promise<string> {
    const { exitCode, stdout, stderr } = await this.run(words, options);
    if (exitCode !== 0) throw new Error(`${words.join(' ')}: ${exitCode}: ${stderr} ${stdout}`);
    return stdout;
  }

  /** Starts a program that goes on, and ends with the machine. */
  async start(words: readonly string[], outputFile: string): Promise<void> {
    // A child of the machine's first process: one of ours, outside, would be stopped with it.
    await this.must(['sh', '-c', '"$@" >"$0" 2>&1 </dev/null &', outputFile, ...words]);
  }

  /** Sends a signal to every program in it. */
  async signal(name: 'STOP' | 'CONT' | 'KILL'): Promise<void> {
    // The calling process and the first one are spared by the kernel.
    await this.run(['sh', '-c', `kill -${name} -1`]);
  }

  /** Ends all that is in it at once, as when the power fails. */
  async powerOff(): Promise<void> {
    if (this.#holder.exitCode !== null || this.#holder.signalCode !== null) return;
    const ended = once(this.#holder, 'exit');
    process.kill(this.pid, 'SIGKILL');
    await ended;
  }
}

export class Site {
  readonly #machines: Machine[] = [];
  #nextNumber = FIRST_MACHINE;
  readonly #prefix: string;
  readonly #network: Machine;

  private constructor(
    prefix: string,
    network: Machine,
    /** Name of the one thing that is seen outside of the machines. */
    readonly outsideLink: string,
  ) {
    this.#prefix = prefix;
    this.#network = network;
  }

  /** Ends with its lifetime, or with this process. */
  static async start(lifetime: Lifetime): Promise<Site> {
    const prefix = await freePrefix();
    const network = await Machine.start('');
    const link = `tmaxfs${randomInt(0x1000_0000).toString(16)}`;
    const site = new Site(prefix, network, link);
    lifetime.teardown(async () => {
      await Promise.all([...site.#machines, network].map((machine) => machine.powerOff()));
    });
    await network.must(['ip', 'link', 'add', 'switch', 'type', 'bridge']);
    await network.must(['ip', 'link', 'set', 'switch', 'up']);
    // The other end lies outside of any machine, and goes with this one.
    const peer = ['type', 'veth', 'peer', 'name', 'outside', 'netns', String(network.pid)];
    await execa('ip', ['link', 'add', link, ...peer]);
    await network.must(['ip', 'link', 'set', 'outside', 'master', 'switch', 'up']);
    for (const address of [site.hubAddress, site.cdnAddress]) {
      await execa('ip', ['address', 'add', `${address}/24`, 'dev', link]);
    }
    await execa('ip', ['link', 'set', link, 'up']);
    return site;
  }

  /** Addresses of this process, as the machines see it. */
  get hubAddress(): string {
    return `${this.#prefix}.${HUB}`;
  }

  get cdnAddress(): string {
    return `${this.#prefix}.${CDN}`;
  }

  /** Adds a machine; powered off with the site. */
  async machine(): Promise<Machine> {
    const number = this.#nextNumber;
    this.#nextNumber += 1;
    const machine = await Machine.start(`${this.#prefix}.${number}`);
    this.#machines.push(machine);
    const port = `port${number}`;
    const ends = ['type', 'veth', 'peer', 'name', 'eth0', 'netns', String(machine.pid)];
    // By the pid as it is outside: the program must see the processes of this machine.
    await execa('nsenter', ['--target', String(this.#network.pid), '--net', 'ip', 'link', 'add', port, ...ends]);
    await this.#network.must(['ip', 'link', 'set', port, 'master', 'switch', 'up']);
    for (const words of [
      ['link', 'set', 'lo', 'up'],
      ['address', 'add', `${machine.address}/24`, 'dev', 'eth0'],
      ['link', 'set', 'eth0', 'up'],
    ]) {
      await machine.must(['ip', ...words]);
    }
    return machine;
  }
}

/** Three numbers of an address that no link here has. */
async function freePrefix(): Promise<string> {
  const { stdout } = await execa('ip', ['-o', '-4', 'address']);
  for (;;) {
    const prefix = `10.${randomInt(64, 250)}.${randomInt(1, 250)}`;
    if (!stdout.includes(` ${prefix}.`)) return prefix;
  }
}
