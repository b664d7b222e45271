/** A cluster with a real OCI registry, which keeps what its nodes publish. */

import { engineTrials } from '../support/cluster-trials.js';
import { hasRegistry, startRegistry } from '../support/engines.js';

engineTrials(hasRegistry, startRegistry);
