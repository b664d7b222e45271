/**
 * How a file is named from the fields of its row: `{instance_id}.sif`, or with folders, which are its variant: `{split}/{instance_id}.sif`.
 *
 * A template is a user's, the fields are anybody's: what comes out is judged as every name of the tree is, and no value adds a folder.
 */

import { TmaxError } from '../errors.js';
import { fileNameOf, IMAGE_SUFFIX, nameProblem, pathProblem, printable } from './names.js';
import { DEFAULT_VARIANT } from './variant-builder.js';

/** Literal text and fields in turn, a field at every odd place. */
export interface NameTemplate {
  readonly text: string;
  readonly parts: readonly string[];
}

/** A row as it was read: its own fields alone are looked at. */
export type Row = Readonly<Record<string, unknown>>;

export interface TaskName {
  readonly variant: string;
  readonly task: string;
}

const FIELD = /\{([A-Za-z_][A-Za-z0-9_.-]{0,63})\}/;
const MAX_TEMPLATE_BYTES = 255;
/** Where no template is given, the first of these that a row has names it. */
const ID_FIELDS = ['task_id', 'instance_id', 'id', 'sif_name'] as const;

/** Errors: EINVAL it could name no image. */
export function parseNameTemplate(text: string): NameTemplate {
  const parts = text.split(new RegExp(FIELD, 'g'));
  const literal = parts.filter((_part, index) => index % 2 === 0).join('');
  const refuse = (why: string) => new TmaxError('EINVAL', `${why}: ${printable(text)}`, { source: 'settings' });
  if (Buffer.byteLength(text) > MAX_TEMPLATE_BYTES) throw refuse(`longer than ${MAX_TEMPLATE_BYTES} bytes`);
  if (/[{}]/.test(literal)) throw refuse('a brace that encloses no field');
  if (parts.length === 1) throw refuse('it names no field, so that all images would have one name');
  if (!text.endsWith(IMAGE_SUFFIX)) throw refuse(`it does not end in ${IMAGE_SUFFIX}`);
  const problem = pathProblem(parts.map((part, index) => (index % 2 === 0 ? part : 'x')).join(''));
  if (problem !== undefined) throw refuse(problem);
  if (fileNameOf(text) === IMAGE_SUFFIX) throw refuse('it names a folder and no file');
  return { text, parts };
}

/** Variant and task of a row, or in words why it has none. */
export function nameOfRow(row: Row, template: NameTemplate | undefined): TaskName | string {
  if (template === undefined) return nameById(row);
  let name = '';
  for (const [index, part] of template.parts.entries()) {
    const value = index % 2 === 0 ? part : fieldOf(row, part);
    if (value === undefined) return `it has no text or number "${part}", which --name wants`;
    if (index % 2 === 1 && value.includes('/')) return `its "${part}" contains "/"`;
    name += value;
  }
  return nameOfPath(name);
}

/** A field that can be a part of a name. */
export function fieldOf(row: Row, name: string): string | undefined {
  const value = Object.hasOwn(row, name) ? row[name] : undefined;
  if (typeof value === 'string') return value === '' ? undefined : value;
  return Number.isSafeInteger(value) ? String(value) : undefined;
}

function nameById(row: Row): TaskName | string {
  for (const field of ID_FIELDS) {
    const value = fieldOf(row, field);
    if (value === undefined) continue;
    if (value.includes('/')) return `its "${field}" contains "/"`;
    return nameOfPath(value.endsWith(IMAGE_SUFFIX) ? value : value + IMAGE_SUFFIX);
  }
  return `it has none of ${ID_FIELDS.join(', ')}: name its files with --name`;
}

function nameOfPath(path: string): TaskName | string {
  const segments = path.split('/');
  for (const segment of segments) {
    const problem = nameProblem(segment);
    if (problem !== undefined) return `its name ${printable(path)} is refused: ${problem}`;
  }
  const longest = pathProblem(path);
  if (longest !== undefined) return `its name is refused: ${longest}`;
  const file = segments.pop() ?? '';
  if (file === IMAGE_SUFFIX) return 'its name is empty';
  return { variant: segments.join('/') || DEFAULT_VARIANT, task: file.slice(0, -IMAGE_SUFFIX.length) };
}
