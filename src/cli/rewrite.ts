/**
 * `tmaxfs rewrite`: a data set whose rows name images gets the absolute paths of a mount. Every row is resolved against the mount's
 * tree, or nothing is written at all; everything but that one column stays as it is.
 */

import { open, stat } from 'node:fs/promises';
import { isAbsolute, resolve } from 'node:path';
import { counted } from '../counted.js';
import { rewriteJsonLines } from '../datasets/json-lines.js';
import { rewriteParquet } from '../datasets/parquet.js';
import { MAGIC } from '../datasets/parquet-footer.js';
import { parseColumn, type RewriteResult } from '../datasets/rows.js';
import { taskColumns, taskDecision } from '../datasets/task-of-row.js';
import { messageOf, TmaxError } from '../errors.js';
import { MOUNT_TYPE, topMountAt } from '../fuse/mount-table.js';
import { OutputFile } from '../output-file.js';
import { chooseMount } from './choose-mount.js';
import { MountedVariant } from './mounted-variant.js';
import { printable } from './table.js';

export interface RewriteOptions {
  readonly mount?: string;
  readonly variant: string;
  readonly output: string;
  readonly column: string;
  readonly taskColumn?: string;
}

/** Sets exit code 1 if a row can't be resolved, each listed. Errors: EINVAL usage; EBADMSG a file that is none; ENOSPC, EACCES. */
export async function rewriteCommand(input: string, options: RewriteOptions): Promise<void> {
  const { mount, variant, output } = options;
  if (mount !== undefined && !isAbsolute(mount)) {
    throw new TmaxError('EINVAL', `--mount takes an absolute path, as rows are to have it, not "${mount}"`, {
      source: 'cli',
    });
  }
  const mountpoint = chooseMount(mount);
  if (topMountAt(mountpoint)?.type !== MOUNT_TYPE) {
    const message = `no tmaxfs is mounted on ${mountpoint}, and only its tree tells which rows can be resolved`;
    throw new TmaxError('ENOTCONN', message, { source: 'cli' });
  }
  const column = parseColumn(options.column);
  const taskColumn = options.taskColumn === undefined ? undefined : parseColumn(options.taskColumn);
  const isParquet = await hasMagic(input);
  const tasks = await MountedVariant.open(mountpoint, mount === undefined ? mountpoint : resolve(mount), variant);
  const decide = taskDecision(tasks, column, taskColumn);
  const file = await OutputFile.create(output, { input });
  try {
    const write = (bytes: Buffer) => file.write(bytes);
    const result = isParquet
      ? await rewriteParquet({ input, column, otherColumns: taskColumns(column, taskColumn), decide, write })
      : await rewriteJsonLines({ input, column, decide, write });
    if (result.unresolvedCount > 0) {
      await file.discard();
      tell(result, output);
      process.exitCode = 1;
      return;
    }
    await file.commit();
    process.stdout.write(
      printable(
        `${counted(result.rows, 'row')}: ${options.column} names ${variant} of ${mount ?? mountpoint} now; written to ${output}\n`,
      ),
    );
  } catch (error) {
    await file.discard();
    throw error;
  }
}

function tell({ rows, unresolvedCount, unresolved }: RewriteResult, output: string): void {
  const lines = unresolved.map(({ number, value, reason }) => `row ${number}: ${JSON.stringify(value)}: ${reason}`);
  const more = unresolvedCount > unresolved.length ? [`and ${unresolvedCount - unresolved.length} more`] : [];
  const sum = `${unresolvedCount} of ${rows} rows can't be resolved; ${output} was not written`;
  process.stderr.write(printable(`${[...lines, ...more, sum].join('\n')}\n`));
}

/** By content: names of data sets promise nothing. Errors: EINVAL it can't be read. */
async function hasMagic(input: string): Promise<boolean> {
  try {
    // A pipe could be read but once.
    if (!(await stat(input)).isFile()) throw new Error(`${input} is no file`);
    const file = await open(input, 'r');
    try {
      const head = Buffer.alloc(MAGIC.length);
      await file.read(head, 0, head.length, 0);
      return head.equals(MAGIC);
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw new TmaxError('EINVAL', `the data set can't be read: ${messageOf(cause)}`, { cause, source: 'cli' });
  }
}
