import { testInterrupting, testLifecycle } from '../support/conformance-lifecycle.js';

const variant = { user: 'ordinary', driver: 'kernel', passthrough: 'off' } as const;

testInterrupting(variant);
testLifecycle(variant);
