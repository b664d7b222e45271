/** Which names and paths of the untrusted catalog files may become names in the tree or paths in a request. */

/** NAME_MAX of Linux file systems: the longest name in one directory, in bytes. */
const MAX_NAME_BYTES = 255;
/** Longer repository paths than this are no path that the Hub accepts. */
const MAX_PATH_BYTES = 1024;

/** `owner/name` of a repository on the Hub. */
export const REPOSITORY_NAME = /^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,95}\/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;
/** A branch, a tag or a commit; ".." is in none: git-check-ref-format(1). */
export const REVISION_NAME = /^(?!.*\.\.)[^\s?#\u0000-\u001f\u007f]{1,255}$/;

// Control characters would forge log lines and break every script that reads `ls`; NUL can't be in a name at all.
const CONTROL_CHARACTER = /[\u0000-\u001f\u007f]/;

// Nearly all names are of these characters alone: they need no closer look.
const PLAIN_NAME = /^[\w+-][\w.+-]{0,254}$/;
const PLAIN_PATH = /^(?:[\w+-][\w.+-]*\/)*[\w+-][\w.+-]*$/;

/** Why `name` can't be a file name in the tree, or undefined where it can. */
export function nameProblem(name: string): string | undefined {
  if (PLAIN_NAME.test(name)) return undefined;
  if (name === '') return 'it is empty';
  if (name === '.' || name === '..') return `it is "${name}"`;
  if (name.includes('/')) return 'it contains "/"';
  if (CONTROL_CHARACTER.test(name)) return 'it contains a control character';
  const bytes = Buffer.from(name, 'utf8');
  if (bytes.length > MAX_NAME_BYTES) return `it is longer than ${MAX_NAME_BYTES} bytes`;
  // A lone surrogate has no UTF-8 form: the kernel would be given another name than the catalog holds.
  if (bytes.toString('utf8') !== name) return 'it is not valid Unicode';
  return undefined;
}

/** Why `path` can't be a path in a repository, or undefined where it can. */
export function pathProblem(path: string): string | undefined {
  if (path.length <= MAX_NAME_BYTES && PLAIN_PATH.test(path)) return undefined;
  if (path === '') return 'the path is empty';
  if (path.startsWith('/')) return 'the path is absolute';
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return `the path is longer than ${MAX_PATH_BYTES} bytes`;
  for (const segment of path.split('/')) {
    const problem = nameProblem(segment);
    if (problem !== undefined) return `a segment of the path is refused: ${problem}`;
  }
  return undefined;
}

/** A name made fit for one line of a log or a terminal: quoted, control characters escaped, cut at 80 characters. */
export function printable(name: string): string {
  return JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}…` : name);
}

/** Ending of every image's name. */
export const IMAGE_SUFFIX = '.sif';

/** Name of a task's file in the tree. */
export function taskFileName(taskId: string): string {
  return `${taskId}${IMAGE_SUFFIX}`;
}

/** Last segment of a repository path. */
export function fileNameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
