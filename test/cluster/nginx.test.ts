/** A cluster behind a real nginx that keeps what it has fetched from the Hub. */

import { engineTrials } from '../support/cluster-trials.js';
import { hasNginx, startNginxCache } from '../support/engines.js';

engineTrials(hasNginx, startNginxCache);
