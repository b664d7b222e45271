/** The machines on which clusters are tried: they reach each other, and nothing is left of them, however the tests end. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import anyTest from 'ava';
import { execa } from 'execa';
import { eventually } from '../support/mount-client.js';
import { supportProgram } from '../support/paths.js';
import { hasEnded } from '../support/processes.js';
import { canMakeSite, Site } from '../support/site.js';
import { temporaryFolder } from '../support/temporary.js';

const test = canMakeSite ? anyTest.serial : anyTest.serial.skip;

test('machines have addresses of their own, from which they reach this process, and see only their own processes', async (t) => {
  const site = await Site.start(t);
  const machines = await Promise.all([site.machine(), site.machine()]);
  const seen: (string | undefined)[] = [];
  for (const address of [site.hubAddress, site.cdnAddress]) {
    const server = createServer((socket) => {
      seen.push(socket.remoteAddress);
      socket.end();
    });
    server.listen(0, address);
    await once(server, 'listening');
    t.teardown(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const connect = `import socket; socket.create_connection(("${address}", ${port})).recv(1)`;
    for (const machine of machines) await machine.must(['python3', '-c', connect]);
  }
  const addresses = machines.map(({ address }) => address);
  t.deepEqual(seen, [...addresses, ...addresses]);
  t.is(new Set(addresses).size, 2);
  for (const machine of machines) {
    t.is((await machine.must(['cat', '/proc/1/comm'])).trim(), 'cat');
    t.not(await machine.must(['readlink', '/proc/self/ns/pid']), readlinkSync('/proc/self/ns/pid'));
  }
});

test('a machine keeps no mount of another test', async (t) => {
  const folder = temporaryFolder(t);
  await execa('mount', ['-t', 'tmpfs', 'tmpfs', folder]);
  t.teardown(async () => void (await execa('umount', ['--lazy', folder])));
  const machine = await (await Site.start(t)).machine();
  t.true(readFileSync('/proc/mounts', 'utf8').includes(folder));
  t.false((await machine.must(['cat', '/proc/mounts'])).includes(folder));
});

test('a process that made a site and is killed leaves no machine, no program in one, and no link', async (t) => {
  const child = spawn(process.execPath, [supportProgram('killed-site')], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => void child.kill('SIGKILL'));
  const [line] = await once(child.stdout, 'data');
  const { link, machines }: { link: string; machines: { pid: number }[] } = JSON.parse(String(line));
  t.true(existsSync(`/sys/class/net/${link}`));
  t.true(machines.every(({ pid }) => !hasEnded(pid)));
  child.kill('SIGKILL');
  await eventually('the machines have ended', () => machines.every(({ pid }) => hasEnded(pid)) || undefined);
  await eventually('the link is gone', () => !existsSync(`/sys/class/net/${link}`) || undefined);
  t.pass();
});
