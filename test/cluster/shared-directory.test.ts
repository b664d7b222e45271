/** A cluster that shares a folder of a real network file system, GlusterFS. */

import { engineTrials } from '../support/cluster-trials.js';
import { hasGluster, startSharedFolder } from '../support/engines.js';

engineTrials(hasGluster, startSharedFolder);
