import { testReading } from '../support/conformance-reading.js';

testReading({ user: 'root', driver: 'fuse-native', passthrough: 'off' });
