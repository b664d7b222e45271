/**
 * `tmaxfs doctor`: looks at everything that a mount needs from this machine, all at once and within a few seconds, and says what
 * is wrong, why it matters, and what to do. Changes nothing.
 */

import { release } from 'node:os';
import { type MountWords, readSettings } from '../daemon/settings.js';
import { CHECKS } from '../doctor/checks.js';
import { examine } from '../doctor/examine.js';
import { type Finding, LEVELS, type Level } from '../doctor/finding.js';
import type { Machine } from '../doctor/machine.js';
import { version } from '../version.js';
import { printable } from './table.js';

export type DoctorOptions = Omit<MountWords, 'mountpoint'> & { readonly json: boolean };

/** What `--json` prints. */
export interface Diagnosis {
  readonly version: string;
  /** ISO 8601. */
  readonly at: string;
  /** Whether no finding is an error. */
  readonly isSound: boolean;
  readonly findings: readonly Finding[];
}

/** Sets exit code 1 if there is an error. Errors: EINVAL a word or a variable that `mount` would refuse too. */
export async function doctorCommand(
  mountpoint: string | undefined,
  options: DoctorOptions,
  knownVariables: readonly string[],
): Promise<void> {
  const diagnosis = await diagnose(thisMachine(mountpoint, options, knownVariables));
  process.stdout.write(options.json ? `${JSON.stringify(diagnosis, null, 2)}\n` : printable(describe(diagnosis)));
  if (!diagnosis.isSound) process.exitCode = 1;
}

export async function diagnose(machine: Machine): Promise<Diagnosis> {
  const findings = await examine(machine, CHECKS);
  const isSound = findings.every(({ level }) => level !== 'error');
  return { version, at: new Date().toISOString(), isSound, findings };
}

/** Errors: EINVAL. */
export function thisMachine(
  mountpoint: string | undefined,
  words: Omit<MountWords, 'mountpoint'>,
  knownVariables: readonly string[],
): Machine {
  const settings = readSettings({ ...words, mountpoint: mountpoint ?? '/' }, process.env);
  return {
    root: '',
    environment: process.env,
    uid: process.geteuid?.() ?? 0,
    kernelRelease: release(),
    nodeVersion: process.versions.node,
    settings,
    knownVariables,
    mountpoint: mountpoint === undefined ? undefined : settings.mountpoint,
  };
}

const SHOWN_LEVELS: Readonly<Record<Level, string>> = { ok: 'ok', note: 'note', warning: 'WARNING', error: 'ERROR' };

/** A line a finding, and where something is to be said about it, why and what to do below; then the count. */
export function describe({ findings }: Diagnosis): string {
  const widest = findings.reduce((width, { check }) => Math.max(width, check.length), 0);
  const indent = ' '.repeat('WARNING'.length + 2 + widest + 2);
  const lines = findings.flatMap(({ level, check, what, why, remedy }) => [
    `${SHOWN_LEVELS[level].padEnd('WARNING'.length)}  ${check.padEnd(widest)}  ${what}`,
    ...(why === null ? [] : [`${indent}why: ${why}`]),
    ...(remedy === null ? [] : [`${indent}do:  ${remedy}`]),
  ]);
  const counted = LEVELS.toReversed().map((level) => {
    const count = findings.filter((finding) => finding.level === level).length;
    const noun = { ok: 'sound', note: 'note', warning: 'warning', error: 'error' }[level];
    return `${count} ${noun}${level === 'ok' || count === 1 ? '' : 's'}`;
  });
  return `${lines.join('\n')}\n\n${counted.join(', ')}\n`;
}
