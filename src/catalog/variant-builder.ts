/** Variants as rows come: of two tasks with one name the first is shown, and the other is told. */

import type { BlobAddress } from '../sources/source.js';
import type { Variant } from './catalog.js';
import type { LeaveOut } from './listing.js';
import { printable } from './names.js';

/** Folder of images that nothing sorts into folders. */
export const DEFAULT_VARIANT = 'images';

interface GrowingVariant extends Variant {
  readonly tasks: Map<string, BlobAddress>;
  readonly unresolvable: Map<string, string>;
}

export class VariantBuilder {
  readonly variants = new Map<string, GrowingVariant>();
  readonly #leaveOut: LeaveOut;

  constructor(leaveOut: LeaveOut) {
    this.#leaveOut = leaveOut;
  }

  /** `image`: its address, or in words why it has none. */
  add(variantName: string, task: string, image: BlobAddress | string): void {
    const variant = this.#variant(variantName);
    const leaveOut = (reason: string) => this.#leaveOut(`task ${printable(task)} of ${variantName}`, reason);
    const shown = variant.tasks.get(task);
    if (shown !== undefined || variant.unresolvable.has(task)) {
      const isSame = typeof image !== 'string' && image.sha256 === shown?.sha256;
      leaveOut(`it is named twice, ${isSame ? 'with one image' : 'and the first is shown'}`);
      return;
    }
    if (typeof image !== 'string') {
      variant.tasks.set(task, image);
      return;
    }
    variant.unresolvable.set(task, image);
    leaveOut(image);
  }

  #variant(name: string): GrowingVariant {
    const known = this.variants.get(name);
    if (known !== undefined) return known;
    const made = { name, tasks: new Map(), unresolvable: new Map() };
    this.variants.set(name, made);
    return made;
  }
}
