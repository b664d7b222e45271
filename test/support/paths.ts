/** Where things lie in the package, seen from the compiled tests (build/test/…). */

import { fileURLToPath } from 'node:url';

/** The package's root folder, with a slash at its end. */
export const packageRoot = fileURLToPath(new URL('../../../', import.meta.url));

export const demoImagesFolder = `${packageRoot}src/demo/images/`;
export const sifFixturesFolder = `${packageRoot}test/fixtures/sif/`;

/** Absolute path below the root of the package. */
export function packagePath(...segments: string[]): string {
  return packageRoot + segments.join('/');
}

/** The compiled helper program `name` of test/support. */
export function supportProgram(name: string): string {
  return fileURLToPath(new URL(`./${name}.js`, import.meta.url));
}
