import { testReading } from '../support/conformance-reading.js';

testReading({ user: 'ordinary', driver: 'kernel', passthrough: 'off' });
