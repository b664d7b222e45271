/** `npm run simulate`: what a cluster's start costs by each tier, as the tables of docs/cluster/README.md (Markdown). */

import { Command, InvalidArgumentError } from 'commander';
import { poolTables } from './tables.js';

const command = new Command('simulate')
  .option('--nodes <number>', 'nodes of the cluster', wholeNumber, 1000)
  .option('--resolver-requests <number>', 'requests that the Hub answers in 5 minutes', wholeNumber, 5000)
  .option('--seed <number>', 'which images the nodes open', wholeNumber, 1)
  .action((options: { nodes: number; resolverRequests: number; seed: number }) => {
    process.stdout.write(`${poolTables(options)}\n`);
  });
await command.parseAsync();

function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,6}$/.test(text)) throw new InvalidArgumentError('a number from 1 to 9999999 is expected');
  return Number(text);
}
