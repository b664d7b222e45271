/** The log file of a daemon, which writes each line some time after what it tells of. */

import { readFileSync } from 'node:fs';
import { eventually } from './mount-client.js';

export type LogLine = Readonly<Record<string, unknown>>;

/** The lines that are there by now, parsed. */
export function logLines(path: string): LogLine[] {
  const text = readFileSync(path, 'utf8');
  // The last one may have been written in part.
  const whole = text.slice(0, text.lastIndexOf('\n') + 1).split('\n');
  return whole.filter(Boolean).map((line) => JSON.parse(line) as LogLine);
}

/** The lines for which this holds, once there are so many of them at least. Throws where they do not come. */
export async function logged(path: string, holds: (line: LogLine) => boolean, count = 1): Promise<LogLine[]> {
  return await eventually(`${count} lines in the log for which ${holds} holds`, () => {
    const lines = logLines(path).filter(holds);
    return lines.length >= count ? lines : undefined;
  });
}
