/**
 * What the documents tell users to type. A block of shell below "<!-- run: STATE -->" is run as it stands, against a pool that is
 * mounted, unmounted or dead; "/tmax" is another folder here. Blocks that need another place (npm, sudo, systemctl, sbatch) are
 * parsed; systemd.test.ts, fstab.test.ts and slurm.test.ts run those.
 */

import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { program } from '../../src/cli/main.js';
import { FakeHub } from '../../src/demo/fake-hub.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { fileOf, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { hasApptainer } from '../support/apptainer.js';
import { type CommandResult, resultOf } from '../support/command.js';
import { demoImagesFolder, packagePath } from '../support/paths.js';
import { temporaryFolder } from '../support/temporary.js';

/** Of one block. */
const TIMEOUT_MS = 90_000;

type State = 'mounted' | 'unmounted' | 'dead';

interface Block {
  readonly document: string;
  readonly state: State | undefined;
  readonly script: string;
}

const documents = [
  'README.md',
  ...readdirSync(packagePath('docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];
const blocks = documents.flatMap(blocksOf);

function blocksOf(document: string): Block[] {
  const text = readFileSync(packagePath(document), 'utf8');
  const found = text.matchAll(/(?:<!-- run: (mounted|unmounted|dead) -->\n)?```sh\n(.*?)```/gs);
  return [...found].map(([, state, script = '']) => ({ document, state: state as State | undefined, script }));
}

/** The pool that the documents speak of, with one task, and the commands that they use on the PATH. */
async function place(t: ExecutionContext): Promise<(script: string) => Promise<CommandResult>> {
  const task = 'task_000008_e0c6244c';
  const image = fileOf('images/pool__image__0a1b2c3d4e5f.sif', readFileSync(join(demoImagesFolder, 'tiny-gzip.sif')));
  const map = taskMapFile({ solvable: { [task]: image.path } });
  const hub = await FakeHub.start({ repositories: [repositoryOf('wAI-org/tmax-image-pool', [map, image])] });
  const folder = temporaryFolder(t);
  const mountpoint = join(folder, 'tmax');
  const programs = join(folder, 'programs');
  for (const path of [mountpoint, programs]) mkdirSync(path);
  const command = (name: string, line: string) => {
    writeFileSync(join(programs, name), `#!/bin/sh\nexec ${line} "$@"\n`);
    chmodSync(join(programs, name), 0o755);
  };
  command('tmaxfs', `${process.execPath} ${packagePath('bin', 'tmaxfs.js')}`);
  if ((await execa('apptainer', ['--version'], { reject: false })).failed) {
    command('apptainer', `${packagePath('test', 'support', 'apptainer-root')} exec ${folder} apptainer`);
  }
  writeFileSync(join(folder, 'tasks.txt'), `${task}\n`);
  const run = (script: string) =>
    resultOf(
      execa(
        'bash',
        ['-euc', script.replaceAll('/tmax', mountpoint).replaceAll(/\.sif true$/gm, '.sif /bin/busybox true')],
        {
          cwd: folder,
          env: {
            PATH: `${programs}:${process.env['PATH']}`,
            HOME: folder,
            TMAX: mountpoint,
            HF_ENDPOINT: hub.endpoint,
            TMAXFS_CACHE_DIR: join(folder, 'cache'),
            TMAXFS_LOG_FILE: join(folder, 'log'),
          },
          extendEnv: false,
          reject: false,
          stdin: 'ignore',
          timeout: TIMEOUT_MS,
        },
      ),
    );
  t.teardown(async () => {
    await run('tmaxfs unmount /tmax --lazy || true');
    await hub.close();
  });
  return run;
}

const PREPARATIONS: Readonly<Record<State, string>> = {
  unmounted: 'true',
  mounted: 'tmaxfs mount /tmax',
  dead: `tmaxfs mount /tmax; kill -KILL $(tmaxfs status /tmax --json | sed -n 's/^  "pid": \\([0-9]*\\),/\\1/p')`,
};

test('there is something to run in the documents', (t) => {
  t.true(blocks.filter(({ state }) => state !== undefined).length >= 4);
});

for (const { document, state, script } of blocks) {
  const [first = ''] = script.split('\n');
  test.serial(`${document}: the shell understands “${first}”`, async (t) => {
    const { stderr } = await resultOf(execa('bash', ['-n'], { input: script, reject: false }));
    t.is(stderr, '');
  });
  if (state === undefined) continue;
  const needs = script.includes('apptainer exec') && !hasApptainer ? test.serial.skip : test.serial;
  needs(`${document}: “${first}” and what follows is run, ${state}`, async (t) => {
    const run = await place(t);
    t.is((await run(PREPARATIONS[state])).exitCode, 0);
    const { exitCode, stdout, stderr } = await run(script);
    t.is(exitCode, 0, `${stdout}\n${stderr}`);
  });
}

test('every option of every command is in the documents', (t) => {
  const text = documents.map((document) => readFileSync(packagePath(document), 'utf8')).join('\n');
  for (const command of program().commands) {
    for (const { long } of command.options) {
      t.true(text.includes(`${long}`), `${command.name()} ${long}`);
    }
  }
});

test('every document that another refers to is there', (t) => {
  for (const document of documents) {
    const text = readFileSync(packagePath(document), 'utf8');
    const folder = dirname(document);
    for (const [, target = ''] of text.matchAll(/\]\((?!https?:)([^)#]+)[^)]*\)/g)) {
      t.true(existsSync(packagePath(folder, target)), `${document}: ${target}`);
    }
  }
});

const troubleshooting = readFileSync(packagePath('docs', 'TROUBLESHOOTING.md'), 'utf8');

test('every errno of an open is in the troubleshooting', (t) => {
  const semantics = readFileSync(packagePath('docs', 'SEMANTICS.md'), 'utf8');
  const table = semantics.split('## Every errno of an open')[1]?.split('\n## ')[0] ?? '';
  const errnos = [...table.matchAll(/^\| `(E[A-Z]+)`/gm)].map(([, errno = '']) => errno);
  t.true(errnos.length >= 12);
  for (const errno of errnos) t.regex(troubleshooting, new RegExp(`^\\| .*\\| \`${errno}\` \\|`, 'm'));
});

test('the messages that the troubleshooting explains are those that the code gives', (t) => {
  const source = readdirSync(packagePath('src'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => readFileSync(packagePath('src', path), 'utf8'))
    .join('\n')
    .replaceAll(/\$\{DEVICE\}/g, '/dev/fuse');
  const table = troubleshooting.split('## Mounting fails')[1]?.split('\n## ')[0] ?? '';
  const messages = [...table.matchAll(/^\| (`.*?`) \|/gm)].flatMap(([, cell = '']) => [...cell.matchAll(/`(.*?)`/g)]);
  t.true(messages.length >= 15);
  const isGiven = (message: string) => {
    // What is left out, "…", differs from case to case.
    const [part = ''] = message.split('…').sort((a, b) => b.length - a.length);
    return source.includes(part.trim());
  };
  t.deepEqual(
    messages.flatMap(([, message = '']) => (isGiven(message) ? [] : [message])),
    [],
  );
});
