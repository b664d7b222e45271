import { testLifecycle } from '../support/conformance-lifecycle.js';

// Interrupts are what this driver can't do: see src/fuse/native/native-mount.ts.
testLifecycle({ user: 'root', driver: 'fuse-native', passthrough: 'off' });
