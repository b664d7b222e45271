import { chmodSync, statSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { execa } from 'execa';
import { ORDINARY_UID } from '../support/mount-client.js';
import { packagePath } from '../support/paths.js';
import { temporaryFolder } from '../support/temporary.js';

/** Where a daemon of an ordinary user has its sockets. */
async function folderFor(runtime: string, temporary: string, forOthers: boolean): Promise<string> {
  const module = packagePath('build', 'src', 'daemon', 'runtime-directory.js');
  const script = `import { makeRuntimeDirectory } from ${JSON.stringify(module)};
    console.log(makeRuntimeDirectory(process.env, ${forOthers}).folder);`;
  const env = { XDG_RUNTIME_DIR: runtime, TMPDIR: temporary };
  const options = { env, uid: ORDINARY_UID, gid: ORDINARY_UID };
  return (await execa(process.execPath, ['--input-type=module', '--eval', script], options)).stdout;
}

test('sockets that others use are not below a folder that they can’t enter', async (t) => {
  const [runtime, temporary] = [temporaryFolder(t), temporaryFolder(t)];
  await execa('chown', [String(ORDINARY_UID), runtime]);
  chmodSync(runtime, 0o700);
  chmodSync(temporary, 0o1777);
  t.is(await folderFor(runtime, temporary, false), join(runtime, 'tmaxfs'));
  const shared = await folderFor(runtime, temporary, true);
  t.is(shared, join(temporary, `tmaxfs-${ORDINARY_UID}`));
  t.is(statSync(shared).mode & 0o777, 0o755);
  t.is(statSync(join(shared, 'private')).mode & 0o777, 0o700);
  chmodSync(runtime, 0o711);
  t.is(await folderFor(runtime, temporary, true), join(runtime, 'tmaxfs'));
});
