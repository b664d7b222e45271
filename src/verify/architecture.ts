/** This machine in the words of SIF, which are those of Go (GOARCH). */

import { arch, endianness } from 'node:os';

const GO_NAMES: Readonly<Record<string, string>> = { x64: 'amd64', ia32: '386' };
/** Node calls both byte orders by one name. */
const LITTLE_ENDIAN_NAMES: Readonly<Record<string, string>> = { ppc64: 'ppc64le', mips: 'mipsle', mipsel: 'mipsle' };

export function hostArchitecture(): string {
  const name = arch();
  return GO_NAMES[name] ?? (endianness() === 'LE' ? LITTLE_ENDIAN_NAMES[name] : undefined) ?? name;
}
