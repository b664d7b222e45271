/** Mount points as names, of units and of log files. */

/** As `systemd-escape --path` does, and so as the instance of a unit is called: "/a/b-c" is "a-b\x2dc". */
export function escapePath(path: string): string {
  const steps = path.split('/').filter(Boolean);
  if (steps.length === 0) return '-';
  return steps.map(escapeStep).join('-').replace(/^\./, '\\x2e');
}

function escapeStep(step: string): string {
  const bytes = [...Buffer.from(step, 'utf8')];
  return bytes
    .map((byte) => {
      const character = String.fromCharCode(byte);
      return /[A-Za-z0-9:_.]/.test(character) ? character : `\\x${byte.toString(16).padStart(2, '0')}`;
    })
    .join('');
}
