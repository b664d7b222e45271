/** Words of a command line, whose errors say which of them they are about. */

import { TmaxError } from '../errors.js';

/** `name`: of the option or variable. Errors: EINVAL, as `parse`, with the name before it. */
export function named<Value>(name: string, parse: (text: string) => Value, text: string): Value {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TmaxError)) throw error;
    throw new TmaxError(error.errno, `${name}: ${error.message}`, { cause: error, source: 'settings' });
  }
}
