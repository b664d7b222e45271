/** Numbers of things, in words. */

/** "1 image", "16,203 images". */
export function counted(number: number, one: string, several = `${one}s`): string {
  return `${number.toLocaleString('en-US')} ${number === 1 ? one : several}`;
}
