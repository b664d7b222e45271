/** `npm run docs`: writes what is written from the commands' own definitions. */

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { program } from '../src/cli/main.js';
import { packageRoot, version } from '../src/version.js';
import { manualPage } from './manual-page.js';

writeFileSync(fileURLToPath(new URL('docs/man/tmaxfs.1', packageRoot)), manualPage({ program: program(), version }));
