import { testInterrupting, testLifecycle } from '../support/conformance-lifecycle.js';

const variant = { user: 'root', driver: 'kernel', passthrough: 'auto' } as const;

testInterrupting(variant);
testLifecycle(variant);
