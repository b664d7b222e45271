/**
 * Files that are no SIF and that apptainer runs all the same: a bare squashfs or ext3 image, with or without a launch
 * line before it. Recognised only to say so; what is neither is simply not a SIF.
 * Source: github.com/apptainer/apptainer, internal/pkg/image (squashfs.go, ext3.go).
 */

import type { ImageFile } from './image-file.js';
import { invalid, type Refusal, unsupported } from './refusal.js';

const HEAD_BYTES = 2048;
const EXT_MAGIC_OFFSET = 1024 + 56;
const EXT_MAGIC = 0xef53;
const SHOWN_BYTES = 24;

/** Why a file without SIF_MAGIC is refused. */
export function refuseForeignForm(image: ImageFile): Refusal {
  const head = image.read(0, Math.min(HEAD_BYTES, image.sizeBytes));
  const body = head.subarray(launchLineBytes(head));
  if (body.toString('latin1', 0, 4) === 'hsqs') {
    return unsupported({
      code: 'bare-squashfs',
      offsetBytes: head.length - body.length,
      message: 'the file is a bare squashfs image, not a SIF; rebuild it with "apptainer build"',
    });
  }
  if (body.length >= EXT_MAGIC_OFFSET + 2 && body.readUInt16LE(EXT_MAGIC_OFFSET) === EXT_MAGIC) {
    return unsupported({
      code: 'bare-ext3',
      offsetBytes: head.length - body.length,
      message: 'the file is a bare ext3 image, not a SIF; rebuild it with "apptainer build"',
    });
  }
  return invalid({
    code: 'sif-magic',
    field: 'magic',
    offsetBytes: 32,
    found: JSON.stringify(head.toString('latin1', 32, 42)),
    expected: '"SIF_MAGIC\\u0000"',
    message: `the file is not a SIF: it starts with ${JSON.stringify(head.toString('latin1', 0, SHOWN_BYTES))}`,
  });
}

/** Length of a leading "#!" line with its line feed, 0 without one. */
function launchLineBytes(head: Buffer): number {
  return head.toString('latin1', 0, 2) === '#!' ? head.indexOf(0x0a) + 1 : 0;
}
