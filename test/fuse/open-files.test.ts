import test from 'ava';
import fc from 'fast-check';
import { OpenFiles } from '../../src/fuse/kernel/open-files.js';

/** Opens and closes in any order; `backs` is whether the kernel agrees to pass a file through at that moment. */
const step = fc.oneof(
  fc.record({ kind: fc.constant('open' as const), inode: fc.bigInt({ min: 1n, max: 4n }), backs: fc.boolean() }),
  fc.record({ kind: fc.constant('release' as const), position: fc.nat() }),
);

test('opens of one inode that overlap are all relayed or all passed through with one id, and nothing leaks', (t) => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const descriptors = new Set<number>();
      const backingIds = new Set<number>();
      let last = 0;
      let backs = false;
      let openFiles = 0;
      const files = new OpenFiles(
        {
          duplicate: () => {
            last += 1;
            descriptors.add(last);
            return last;
          },
          identity: (descriptor) => String(descriptor),
          close: (descriptor) => void t.true(descriptors.delete(descriptor)),
        },
        {
          open: (descriptor) => {
            t.true(descriptors.has(descriptor));
            if (!backs) return undefined;
            last += 1;
            backingIds.add(last);
            return last;
          },
          close: (id) => void t.true(backingIds.delete(id)),
        },
      );
      const open: { inode: bigint; handle: number; backingId: number | undefined }[] = [];
      for (const action of steps) {
        if (action.kind === 'open') {
          backs = action.backs;
          openFiles += 1;
          const close = (): void => {
            openFiles -= 1;
          };
          const opened = files.add(action.inode, { descriptor: 0, close });
          const others = open.filter(({ inode }) => inode === action.inode);
          t.true(others.every(({ backingId }) => backingId === opened.backingId));
          t.false(open.some(({ handle }) => handle === opened.handle));
          open.push({ inode: action.inode, ...opened });
        } else if (open.length > 0) {
          const [released] = open.splice(action.position % open.length, 1);
          files.release(released?.handle ?? -1);
        }
        t.is(files.handleCount, open.length);
        t.is(openFiles, open.length);
        t.deepEqual([...backingIds].sort(), [...new Set(open.flatMap(({ backingId }) => backingId ?? []))].sort());
        t.is(files.backingIdCount, backingIds.size);
      }
      files.releaseAll();
      t.is(descriptors.size + backingIds.size + openFiles, 0);
    }),
    { numRuns: 500 },
  );
});
