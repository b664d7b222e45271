import test from 'ava';
import { RoomChanges } from '../../src/blobs/room-changes.js';

const FETCHES = { fetches: true, leases: false, elsewhere: false };
const LEASES = { fetches: false, leases: true, elsewhere: false };

test('who waits is told of a change', async (t) => {
  const changes = new RoomChanges();
  const waiting = changes.patience(20).wait(new AbortController().signal, FETCHES);
  changes.tell();
  t.true(await waiting);
});

test('where nothing can give room nobody waits', async (t) => {
  const nothing = { fetches: false, leases: false, elsewhere: false };
  t.false(await new RoomChanges().patience(20).wait(new AbortController().signal, nothing));
});

test('leases alone are waited for until patience ends', async (t) => {
  t.false(await new RoomChanges().patience(20).wait(new AbortController().signal, LEASES));
});

test('an abort ends the wait, also one that came before it', async (t) => {
  const patience = new RoomChanges().patience(20);
  const controller = new AbortController();
  const waiting = patience.wait(controller.signal, FETCHES);
  controller.abort();
  t.true(await waiting);
  t.true(await patience.wait(controller.signal, FETCHES));
});
