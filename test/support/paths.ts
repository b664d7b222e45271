/** Where the package's own files lie, seen from the compiled tests. */

import { fileURLToPath } from 'node:url';

/** The package's root folder, with a slash at its end. */
export const packageRoot = fileURLToPath(new URL('../../../', import.meta.url));

export const demoImagesFolder = `${packageRoot}src/demo/images/`;
export const sifFixturesFolder = `${packageRoot}test/fixtures/sif/`;
