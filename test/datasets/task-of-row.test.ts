import test from 'ava';
import { imageFileNames, taskDecision, type VariantTasks } from '../../src/datasets/task-of-row.js';

const IMAGES = new Map([
  ['hamishi740__swerl-tmax-v3__aa.sif', ['task_1']],
  ['hamishi740__swerl-tmax-v3__bb.sif', ['task_2', 'task_3']],
  ['hamishi740__swerl-tmax-v3__cc.sif', ['task_4', 'task_5']],
  ['hamishi740__swerl-tmax-v3__dd.sif', ['task_4', 'task_9']],
  ['hamishi740__swerl-tmax-v3__ee.sif', ['task_9']],
]);
const TASKS: VariantTasks = {
  variant: 'solvable',
  has: (task) => /^task_[1-5]$/.test(task),
  pathOf: (task) => `/tmax/solvable/${task}.sif`,
  tasksOfImage: async (names) => names.flatMap((name) => IMAGES.get(name) ?? []),
  areOneImage: async (tasks) => ['task_1', 'task_2,task_3'].includes(tasks.join(',')),
};
const COLUMN = ['env_config', 'image'];

async function decided(row: unknown, current: string | undefined, taskColumn?: readonly string[]): Promise<string> {
  const decision = await taskDecision(TASKS, COLUMN, taskColumn)(row, current);
  return 'image' in decision ? decision.image.replace('/tmax/solvable/', '') : `no: ${decision.reason}`;
}

test('a path, a file name or a bare id that is a task is that task', async (t) => {
  for (const current of ['/old/original/task_1.sif', 'task_1.sif', 'task_1'])
    t.is(await decided({}, current), 'task_1.sif');
});

test('a task id beside the image or at the top comes before the image', async (t) => {
  const current = 'hamishi740/swerl-tmax-v3:aa';
  t.is(await decided({ env_config: { task_id: 'task_4' } }, current), 'task_4.sif');
  t.is(await decided({ task_id: 'task_4' }, current), 'task_4.sif');
  t.is(await decided({ instance_id: 'task_4' }, undefined), 'task_4.sif');
  t.is(await decided({ task_id: 'of another pool' }, current), 'task_1.sif', 'an id that is no task says nothing');
});

test('an image is found by tag, by file name, with a registry, scheme or digest', async (t) => {
  for (const current of [
    'hamishi740/swerl-tmax-v3:aa',
    'docker://hamishi740/swerl-tmax-v3:aa',
    'docker.io/hamishi740/swerl-tmax-v3:aa',
    'localhost:5000/hamishi740/swerl-tmax-v3:aa',
    `hamishi740/swerl-tmax-v3:aa@sha256:${'0'.repeat(64)}`,
    '/somewhere/hamishi740__swerl-tmax-v3__aa.sif',
  ]) {
    t.is(await decided({}, current), 'task_1.sif', current);
  }
  t.deepEqual(imageFileNames('docker://ghcr.io/a/b:c'), ['ghcr.io__a__b__c.sif', 'a__b__c.sif']);
});

test('several tasks of one image are all the same to a row; of several images none is taken', async (t) => {
  t.is(await decided({}, 'hamishi740/swerl-tmax-v3:bb'), 'task_2.sif');
  t.regex(await decided({}, 'hamishi740/swerl-tmax-v3:cc'), /^no: .*several tasks.*\(task_4, task_5\).*--task-column/);
  t.regex(
    await decided({}, 'hamishi740/swerl-tmax-v3:dd'),
    /^no: .*several tasks.*task_9/,
    'which of them the row is, nobody knows',
  );
  t.regex(await decided({}, 'hamishi740/swerl-tmax-v3:ee'), /^no: its task task_9 is not in solvable/);
});

test('a column that is named is all that counts', async (t) => {
  const row = { meta: { name: 'task_2' }, task_id: 'task_3' };
  t.is(await decided(row, '/x/task_1.sif', ['meta', 'name']), 'task_2.sif');
  t.regex(
    await decided({ meta: { name: 'task_9' } }, '/x/task_1.sif', ['meta', 'name']),
    /^no: solvable has no task "task_9"/,
  );
  t.regex(await decided({}, '/x/task_1.sif', ['meta', 'name']), /^no: meta\.name holds no text/);
});

test('what nothing names stays unresolved, with the reason', async (t) => {
  t.regex(await decided({}, 'ubuntu:22.04'), /^no: neither a task of solvable, nor an image of one/);
  t.regex(await decided({}, undefined), /^no: it holds no text/);
});
