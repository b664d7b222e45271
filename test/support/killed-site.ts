/** A process that makes a site, says what it is made of in a line of JSON, and waits to be killed. */

import { Site } from './site.js';

const site = await Site.start({ teardown: () => undefined });
const machines = await Promise.all([site.machine(), site.machine()]);
for (const machine of machines) await machine.start(['sleep', '1000'], '/dev/null');
const report = { link: site.outsideLink, machines: machines.map(({ pid, address }) => ({ pid, address })) };
process.stdout.write(`${JSON.stringify(report)}\n`);
setInterval(() => undefined, 1000);
