/** Whether Slurm ends what outlives a step, and with it a daemon in the background. */

import { note, ok, type Remark, warning } from '../finding.js';
import { findProgram, type Machine, readText } from '../machine.js';
import { runProgram } from '../program.js';

const SCONTROL_LIMIT_MS = 5_000;
const FILES = ['/etc/slurm/slurm.conf', '/etc/slurm-llnl/slurm.conf', '/run/slurm/conf/slurm.conf'];

export async function slurm(machine: Machine): Promise<readonly Remark[]> {
  const { environment } = machine;
  const job = environment['SLURM_JOB_ID'];
  const tracking = await processTracking(machine);
  if (tracking === undefined) {
    return [
      job === undefined
        ? ok('no Slurm here')
        : note(`job ${job} of Slurm, whose ProctrackType is not known`, ENDS, REMEDY),
    ];
  }
  if (!/cgroup/i.test(tracking)) return [ok(`Slurm tracks processes by ${tracking}`)];
  const what = `Slurm ends every process of a step with it (${tracking})`;
  return [job === undefined ? note(what, ENDS, REMEDY) : warning(`${what}, and this is job ${job}`, ENDS, REMEDY)];
}

const ENDS = 'a daemon in the background is killed when the step or the prolog that started it ends';
const REMEDY = 'srun --overlap --ntasks-per-node=1 tmaxfs mount --foreground /tmax & in the job script';

/** As the controller says, else as a file says: ProctrackType of slurm.conf(5). */
async function processTracking(machine: Machine): Promise<string | undefined> {
  const type = /^\s*ProctrackType\s*=\s*(\S+)/im;
  const scontrol = await findProgram(machine, ['scontrol']);
  if (scontrol !== undefined) {
    const { stdout } = await runProgram(scontrol, ['show', 'config'], { timeoutMs: SCONTROL_LIMIT_MS });
    const said = type.exec(stdout)?.[1];
    if (said !== undefined) return said;
  }
  const named = machine.environment['SLURM_CONF']?.trim();
  for (const path of named ? [named, ...FILES] : FILES) {
    const said = type.exec((await readText(machine, path)) ?? '')?.[1];
    if (said !== undefined) return said;
  }
  return undefined;
}
