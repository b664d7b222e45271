/** What a program does to the files below a folder, in order, as the kernel was asked for it: recorded by strace. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';

/** Paths are absolute. `sync` is of a file or a folder, and has its effect when it returns; all else when it is called. */
export type DiskOperation =
  | { readonly kind: 'create'; readonly path: string; readonly truncates: boolean }
  /** Without `at`: behind what is there. */
  | { readonly kind: 'write'; readonly path: string; readonly at: number | undefined; readonly bytes: Buffer }
  | { readonly kind: 'truncate'; readonly path: string; readonly sizeBytes: number }
  | { readonly kind: 'modified'; readonly path: string; readonly seconds: number }
  | { readonly kind: 'sync'; readonly path: string }
  | { readonly kind: 'rename'; readonly from: string; readonly to: string }
  | { readonly kind: 'remove'; readonly path: string }
  | { readonly kind: 'folder'; readonly path: string };

/** Every call that changes files or their names; what of it is not understood below is an error. */
const CALLS =
  'openat,open,creat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,fallocate,copy_file_range,sendfile,fsync,' +
  'fdatasync,sync_file_range,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,' +
  'utimensat,utime,utimes,futimesat';

/** Runs a Node program with `args` to its end. `scratch`: folder for the record. Errors: a call that is not understood. */
export async function recordOperations(
  program: string,
  args: readonly string[],
  root: string,
  scratch: string,
): Promise<DiskOperation[]> {
  const record = join(scratch, 'strace');
  const words = ['-f', '-qq', '-y', '-xx', '-s', String(1 << 24), '-o', record, '-e', `trace=${CALLS}`];
  // Requests through an io_uring would pass by strace.
  await execa('strace', [...words, process.execPath, program, ...args], { env: { UV_USE_IO_URING: '0' } });
  return operationsOf(readFileSync(record, 'latin1'), root);
}

const UNFINISHED = /^(\d+) +(.*) <unfinished \.\.\.>$/;
const RESUMED = /^(\d+) +<\.\.\. \w+ resumed>(.*)$/;
const CALL = /^\d+ +(\w+)\((.*)\) += (-?\d+)/;

function operationsOf(record: string, root: string): DiskOperation[] {
  const operations: (DiskOperation | undefined)[] = [];
  const pending = new Map<string, { readonly text: string; readonly place: number }>();
  for (const line of record.split('\n')) {
    const [, beginner, begun] = UNFINISHED.exec(line) ?? [];
    if (beginner !== undefined && begun !== undefined) {
      pending.set(beginner, { text: `${beginner} ${begun}`, place: operations.push(undefined) - 1 });
      continue;
    }
    const [, ender, rest] = RESUMED.exec(line) ?? [];
    const start = ender === undefined ? undefined : pending.get(ender);
    const operation = operationOf(start === undefined ? line : start.text + rest, root);
    if (start === undefined || operation?.kind === 'sync') operations.push(operation);
    else operations[start.place] = operation;
  }
  return operations.filter((operation) => operation !== undefined);
}

function operationOf(line: string, root: string): DiskOperation | undefined {
  const [, call = '', args = '', result = ''] = CALL.exec(line) ?? [];
  if (call === '' || Number(result) < 0) return undefined;
  // Names of open descriptors stand in <>, arguments in "".
  const descriptor = decoded(/^\d+<((?:\\x..)*)>/.exec(args)?.[1]);
  const strings = [...args.matchAll(/"((?:\\x..)*)"/g)].map(([, text]) => text ?? '');
  const paths = strings.map((text) => (text.length < 4 * 4096 ? decoded(text) : ''));
  const path = descriptor === '' ? (paths[0] ?? '') : descriptor;
  if (!path.startsWith(`${root}/`) && path !== root) return undefined;
  if (path.endsWith(' (deleted)')) return undefined;
  switch (call) {
    case 'openat': {
      const isCreated = args.includes('O_CREAT') || args.includes('O_TRUNC');
      return isCreated ? { kind: 'create', path, truncates: args.includes('O_TRUNC') } : undefined;
    }
    case 'write':
    case 'writev':
    case 'pwrite64':
    case 'pwritev': {
      const bytes = Buffer.concat(strings.map(bytesOf)).subarray(0, Number(result));
      const at = call.startsWith('p') ? Number(/(\d+)$/.exec(args)?.[1]) : undefined;
      return { kind: 'write', path, at, bytes };
    }
    case 'ftruncate':
      return { kind: 'truncate', path, sizeBytes: Number(/(\d+)$/.exec(args)?.[1]) };
    case 'fsync':
    case 'fdatasync':
      return { kind: 'sync', path };
    case 'utimensat':
      // Only of the last use.
      if (args.includes('UTIME_OMIT')) return undefined;
      return { kind: 'modified', path, seconds: Number([...args.matchAll(/tv_sec=(\d+)/g)][1]?.[1]) };
    case 'rename':
      return { kind: 'rename', from: path, to: paths[1] ?? '' };
    case 'unlink':
      return { kind: 'remove', path };
    case 'mkdir':
      return { kind: 'folder', path };
    default:
      throw new Error(`the recorder does not understand ${line.slice(0, 200)}`);
  }
}

function bytesOf(text: string): Buffer {
  return Buffer.from(text.replaceAll('\\x', ''), 'hex');
}

function decoded(text = ''): string {
  return bytesOf(text).toString('utf8');
}
