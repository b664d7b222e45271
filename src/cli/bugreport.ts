/**
 * `tmaxfs bugreport`: one text file with all that whoever helps will ask for. Plain text, so that it can be read before it is sent; secrets
 * are taken out, and what the file holds nobody but its owner can read.
 */

import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { tokenReader } from '../daemon/token.js';
import { redactor } from '../doctor/redact.js';
import { writeReport } from '../doctor/report.js';
import { reportSections } from '../doctor/report-sections.js';
import { OutputFile } from '../output-file.js';
import { type DoctorOptions, describe, diagnose, thisMachine } from './doctor.js';
import { printable } from './table.js';

export type BugreportOptions = Omit<DoctorOptions, 'json'> & { readonly output?: string };

/** Errors: EINVAL as `doctor`; EACCES, ENOSPC the file can't be written. */
export async function bugreportCommand(
  mountpoint: string | undefined,
  options: BugreportOptions,
  knownVariables: readonly string[],
): Promise<void> {
  const machine = thisMachine(mountpoint, options, knownVariables);
  const token = await tokenReader({ ...machine.settings.token, value: undefined })().catch(() => undefined);
  const redact = redactor(machine.environment, token === undefined ? [] : [token]);
  const sections = await reportSections(machine, async () => describe(await diagnose(machine)));
  const report = printable(await writeReport(sections, redact));
  if (options.output === '-') {
    process.stdout.write(report);
    return;
  }
  const path = resolve(options.output ?? defaultName());
  const file = await OutputFile.create(path, { mode: REPORT_MODE });
  await file.write(Buffer.from(report)).catch(async (error: unknown) => {
    await file.discard();
    throw error;
  });
  await file.commit();
  process.stdout.write(`${path}: read it before you send it; tokens, passwords and signatures were taken out\n`);
}

const REPORT_MODE = 0o600;

function defaultName(): string {
  const at = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '');
  return `tmaxfs-bugreport-${hostname().replaceAll(/[^\w.-]/g, '_')}-${at}.txt`;
}
