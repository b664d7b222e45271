import test from 'ava';
import { Command } from 'commander';
import { defineMount } from '../../src/cli/define-mount.js';
import { type HelperCall, parseHelperCall, wordsOfMount } from '../../src/cli/mount-helper.js';
import { TmaxError } from '../../src/errors.js';

const tmaxfs = new Command();
defineMount(tmaxfs, []);

const CALL: HelperCall = {
  ...{ repository: 'o/p', mountpoint: '/tmax', options: [], fake: false, sloppy: false, verbose: false },
};

function words(...options: string[]): string[] {
  return wordsOfMount({ ...CALL, options }, tmaxfs);
}

test('it is called as mount(8) calls its helpers', (t) => {
  t.deepEqual(parseHelperCall(['o/p', '/tmax', '-o', 'rw']), { ...CALL, options: ['rw'] });
  t.deepEqual(parseHelperCall(['o/p', '/tmax', '-s', '-f', '-n', '-v', '-o', 'rw,_netdev', '-t', 'tmaxfs']), {
    ...CALL,
    ...{ options: ['rw', '_netdev'], fake: true, sloppy: true, verbose: true },
  });
  t.deepEqual(parseHelperCall(['-sfnv', '-oro,,noatime,', 'o/p', '/a b']), {
    ...CALL,
    ...{ mountpoint: '/a b', options: ['ro', 'noatime'], fake: true, sloppy: true, verbose: true },
  });
});

test('in quotes a comma belongs to the value', (t) => {
  t.deepEqual(parseHelperCall(['o/p', '/tmax', '-o', 'ro,cache_dir="/a,b",offline']).options, [
    'ro',
    'cache_dir=/a,b',
    'offline',
  ]);
});

test('whatever else it is called with is refused', (t) => {
  for (const args of [[], ['o/p'], ['o/p', '/tmax', '/more'], ['o/p', '/tmax', '-x'], ['o/p', '/tmax', '-N', '1']]) {
    const error = t.throws(() => parseHelperCall(args), { instanceOf: TmaxError }, args.join(' '));
    t.is(error?.errno, 'EINVAL');
  }
});

test('every option of the command is an option of the mount, under the same name', (t) => {
  const mount = tmaxfs.commands.find((command) => command.name() === 'mount');
  const skipped = new Set(['--repo', '--pool', '--foreground']);
  const options = (mount?.options ?? []).filter(({ long }) => !skipped.has(long ?? ''));
  t.true(options.length > 20);
  for (const { long = '', required } of options) {
    const name = long?.slice(2).replaceAll('-', '_') ?? '';
    t.deepEqual(words(required ? `${name}=a=b` : name), ['--repo=o/p', required ? `${long}=a=b` : long, '--', '/tmax']);
  }
});

test('several pools are one device, as the list of mounts has it', (t) => {
  const repository = 'one=o/p+two=o/q@v1+rc.1';
  t.deepEqual(wordsOfMount({ ...CALL, repository, options: ['catalog=two=listing'] }, tmaxfs), [
    ...['--pool=one=o/p', '--pool=two=o/q@v1+rc.1', '--catalog=two=listing', '--', '/tmax'],
  ]);
});

test('what is meant for mount(8) and systemd, or true of every mount of tmaxfs, is accepted', (t) => {
  const accepted =
    'rw,ro,defaults,_netdev,nofail,noauto,auto,user,user=alice,users,exec,nosuid,nodev,noatime,relatime,x-systemd.automount,x-systemd.mount-timeout=90,X-mount.mkdir,comment=x';
  t.deepEqual(words(...accepted.split(',')), ['--repo=o/p', '--', '/tmax']);
});

for (const [written, named] of [
  ['cahce_dir=/x', '"cahce_dir"'],
  ['remount', '"remount"'],
  ['suid', '"suid"'],
  ['repo=o/q', '"repo"'],
  ['pool=a=o/q', '"pool"'],
  ['foreground', '"foreground"'],
  ['cache_dir', '"cache_dir" takes a value'],
  ['offline=1', '"offline" takes no value'],
] as const) {
  test(`the option ${written} is refused by name`, (t) => {
    const error = t.throws(() => words('ro', written), { instanceOf: TmaxError });
    t.true(error?.message.includes(named), error?.message);
    t.is(error?.errno, 'EINVAL');
  });
}

test('a sloppy mount leaves out what nobody knows, and nothing else', (t) => {
  const options = ['nonsense=1', 'cache_size=5G', 'bind'];
  t.deepEqual(wordsOfMount({ ...CALL, options, sloppy: true }, tmaxfs), [
    '--repo=o/p',
    '--cache-size=5G',
    '--',
    '/tmax',
  ]);
});

test('a mount point that begins with a dash is no option', (t) => {
  t.deepEqual(wordsOfMount({ ...CALL, mountpoint: '-x' }, tmaxfs).slice(-2), ['--', '-x']);
});
