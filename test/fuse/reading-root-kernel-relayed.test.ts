import { testReading } from '../support/conformance-reading.js';

testReading({ user: 'root', driver: 'kernel', passthrough: 'off' });
