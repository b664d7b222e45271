#!/usr/bin/env node
import { mountHelper } from '../build/src/cli/mount-helper.js';

await mountHelper(process.argv);
