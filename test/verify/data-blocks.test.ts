import test from 'ava';
import fc from 'fast-check';
import { type DataBlocks, splitBlocks } from '../../src/verify/squashfs/data-blocks.js';

function blocksOf(sizes: readonly number[]): DataBlocks {
  const numbers = Uint32Array.from(sizes);
  return { starts: Float64Array.from(sizes), diskBytes: numbers, minBytes: numbers, maxBytes: numbers };
}

test('parts hold every block once, in order, none of them much larger than asked for', (t) => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 100 })), fc.integer({ min: 1, max: 500 }), (sizes, partBytes) => {
      const parts = splitBlocks(blocksOf(sizes), partBytes);
      for (const key of ['starts', 'diskBytes', 'minBytes', 'maxBytes'] as const) {
        t.deepEqual(
          parts.flatMap((part) => [...part[key]]),
          sizes,
        );
      }
      for (const [index, { diskBytes }] of parts.entries()) {
        const bytes = diskBytes.reduce((sum, size) => sum + size, 0);
        t.true(bytes < partBytes + 100);
        t.true(bytes >= partBytes || index === parts.length - 1);
      }
    }),
  );
});

test('an image without compressed data is one part, and a part does not carry the memory of the others', (t) => {
  t.is(splitBlocks(blocksOf([]), 10).length, 1);
  const [first] = splitBlocks(blocksOf([5, 5, 5]), 5);
  t.is(first?.starts.buffer.byteLength, 8);
});
