import { testInterrupting, testLifecycle } from '../support/conformance-lifecycle.js';

const variant = { user: 'root', driver: 'kernel', passthrough: 'off' } as const;

testInterrupting(variant);
testLifecycle(variant);
