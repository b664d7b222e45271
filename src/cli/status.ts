/** `tmaxfs status`: one screen of what a daemon is doing, or its whole document. */

import { setTimeout as delay } from 'node:timers/promises';
import { askDaemon } from '../daemon/control-client.js';
import type { Status } from '../daemon/status.js';
import { wordsOf } from '../errors.js';
import { chooseMount, mountpointsOfAll } from './choose-mount.js';
import { oneLine, screenOf } from './status-screen.js';
import { printable } from './table.js';

const WATCH_INTERVAL_MS = 2000;
/** Without a flicker: home, each line up to its end, then all that is left below. */
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';
/** Of a terminal whose size is not known: serial consoles, containers. */
const DEFAULT_ROWS = 24;
const DEFAULT_COLUMNS = 80;

/**
 * While it is watched, a daemon may end and another come: that is said, and looking goes on.
 * Errors: those of `askDaemon`, unless several mounts are asked for: then each is one line, and an error's too.
 */
export async function statusCommand(
  named: string | undefined,
  options: { readonly json: boolean; readonly watch: boolean },
): Promise<void> {
  const mountpoints = named === undefined ? mountpointsOfAll() : [chooseMount(named)];
  const [only, ...others] = mountpoints;
  const look = () =>
    only !== undefined && others.length === 0 ? oneMount(only, options.json) : severalMounts(mountpoints, options.json);
  show(await look(), options.watch);
  while (options.watch) {
    await delay(WATCH_INTERVAL_MS);
    const text = await look().catch((error: unknown) => {
      const words = printable(wordsOf(error));
      return options.json ? `${JSON.stringify({ error: words })}\n` : `${new Date().toISOString()}  ${words}\n`;
    });
    show(text, true);
  }
}

function show(text: string, isWatched: boolean): void {
  const { stdout } = process;
  stdout.write(isWatched && stdout.isTTY ? redrawn(text, stdout.rows, stdout.columns) : text);
}

/**
 * Over what was there before; as much as the window holds, since what scrolls can't be drawn over. A terminal that does not
 * know its size says 0 rows and columns.
 */
export function redrawn(text: string, rows: number, columns: number): string {
  const lines = text.trimEnd().split('\n');
  let left = (rows > 0 ? rows : DEFAULT_ROWS) - 1;
  const width = columns > 0 ? columns : DEFAULT_COLUMNS;
  const fitting = lines.filter((line) => {
    left -= Math.max(1, Math.ceil(line.length / width));
    return left >= 0;
  });
  const more = lines.length - fitting.length;
  const shown = more > 0 ? [...fitting.slice(0, -1), `(${more + 1} more lines in a larger window)`] : fitting;
  return `${HOME}${shown.map((line) => `${line}${CLEAR_LINE}\n`).join('')}${CLEAR_BELOW}`;
}

async function oneMount(mountpoint: string, json: boolean): Promise<string> {
  const status = await statusOf(mountpoint);
  return json ? `${JSON.stringify(status, null, 2)}\n` : printable(screenOf(status));
}

/** One that does not answer, or whose daemon is of a version with another document, is a line too. */
async function severalMounts(mountpoints: readonly string[], json: boolean): Promise<string> {
  const answers = await Promise.all(
    mountpoints.map(async (mountpoint) => {
      try {
        const status = await statusOf(mountpoint);
        return { mountpoint, status, line: oneLine(status) };
      } catch (error) {
        return { mountpoint, line: wordsOf(error) };
      }
    }),
  );
  if (json) return `${JSON.stringify(answers, null, 2)}\n`;
  return printable(answers.map(({ mountpoint, line }) => `${mountpoint}  ${line}\n`).join(''));
}

async function statusOf(mountpoint: string): Promise<Status> {
  // The daemon is of this package: its documents are of our own types.
  return (await askDaemon(mountpoint, '/status')) as Status;
}
