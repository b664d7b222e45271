/** Any repository: its `*.sif` as they lie. A folder is a variant, under its whole path; those at the root are in `images`. */

import { directoryOf } from './catalog.js';
import type { CatalogForm } from './catalog-form.js';
import { fileNameOf, IMAGE_SUFFIX, nameProblem, printable } from './names.js';
import { DEFAULT_VARIANT, VariantBuilder } from './variant-builder.js';

export const listingForm: CatalogForm = {
  kind: 'listing',
  indexPath: undefined,
  filesElsewhere: () => [],
  variants: ({ own, leaveOut }) => {
    const builder = new VariantBuilder(leaveOut);
    for (const [path, address] of own.images) {
      const name = fileNameOf(path);
      // A file that is called ".sif" alone has no task.
      if (name === IMAGE_SUFFIX || nameProblem(name) !== undefined) {
        leaveOut(`listing entry ${printable(path)}`, 'its name stands for no task');
        continue;
      }
      builder.add(directoryOf(path) || DEFAULT_VARIANT, name.slice(0, -IMAGE_SUFFIX.length), address);
    }
    return builder.variants;
  },
};
