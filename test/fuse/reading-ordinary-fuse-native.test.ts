import { testReading } from '../support/conformance-reading.js';

testReading({ user: 'ordinary', driver: 'fuse-native', passthrough: 'off' });
