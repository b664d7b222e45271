import test from 'ava';
import fc from 'fast-check';
import { createMailboxMemory, Doorbell, MAX_MESSAGE_BYTES, Mailbox } from '../../src/fuse/kernel/mailbox.js';

/** The two ends of one mailbox, as two threads hold them. */
function ends(): { reader: Mailbox; main: Mailbox } {
  const memory = createMailboxMemory();
  return { reader: new Mailbox(memory), main: new Mailbox(memory) };
}

function takeAll(mailbox: Mailbox, limit = 10_000): readonly string[] {
  const messages: string[] = [];
  mailbox.take(limit, (message) => void messages.push(message.toString()));
  return messages;
}

test('messages come out whole and in their order, however putting and taking alternate', (t) => {
  const step = fc.oneof(fc.string({ minLength: 1, maxLength: 60 }), fc.nat({ max: 5 }));
  const { reader, main } = ends();
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const put: string[] = [];
      const taken: string[] = [];
      for (const action of steps) {
        if (typeof action === 'string') {
          reader.put(Buffer.from(action));
          put.push(Buffer.from(action).toString());
        } else {
          taken.push(...takeAll(main, action));
        }
      }
      taken.push(...takeAll(main));
      t.deepEqual(taken, put);
      t.true(main.isEmpty);
    }),
    { numRuns: 300 },
  );
});

test('a message that is too long is cut, not spilled over the next', (t) => {
  const { reader, main } = ends();
  reader.put(Buffer.alloc(MAX_MESSAGE_BYTES * 3, 'a'));
  reader.put(Buffer.from('next'));
  t.deepEqual(takeAll(main), ['a'.repeat(MAX_MESSAGE_BYTES), 'next']);
});

test('requests are counted by opcode, unknown opcodes together', (t) => {
  const { reader, main } = ends();
  for (const opcode of [1, 1, 52, 5000, 0xffff_ffff]) reader.count(opcode);
  t.is(main.counts[1], 2);
  t.is(main.counts[52], 1);
  t.is(main.counts[main.counts.length - 1], 2);
});

test('the doorbell rings once for a sleeper, and not at all for one who is awake', (t) => {
  const memory = Doorbell.createMemory();
  const [ringer, sleeper] = [new Doorbell(memory), new Doorbell(memory)];
  t.false(ringer.takeSleep());
  sleeper.prepareToSleep();
  t.true(ringer.takeSleep());
  t.false(ringer.takeSleep());
});
