/** Who runs a call, over restarts. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type BrokerStore, openBrokerStore } from '../../../src/broker/store/broker-store.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { callRounds } from './call-rounds.js';
import { makeFolder } from './store-process.js';

let place: ReturnType<typeof makeFolder>;
beforeEach(() => {
  place = makeFolder('journal');
});
afterEach(() => place.remove());

const hourMs = 3_600_000;
const open = (clock: FakeClock, limits = {}): Promise<BrokerStore> =>
  openBrokerStore({ folder: place.folder, clock, limits });

const claimOf = (clock: FakeClock, key: string, changes = {}) => ({
  ...{ mailbox: 'w1', key, hash: 'h', isRepeatable: false },
  rememberUntil: new Date(clock.date().getTime() + 24 * hourMs),
  ...changes,
});

test('B11: over kills and 23 hours no key is run twice, no reply is lost and no other arguments are taken', async () => {
  const report = await callRounds(place.folder, 8, 12);
  expect(report).toMatchObject({ executedTwice: 0, lostReplies: 0, otherAccepted: 0 });
  // The others were begun by one that was killed before it could say so: those are lost, which the last one heard.
  expect(report.executions).toBeGreaterThan(8 * 6);
  expect(report.done).toBeGreaterThan(8);
}, 90_000);

test('D-40: what was begun by a process that is gone is lost, or given again where it may be repeated', async () => {
  const clock = new FakeClock();
  const first = await open(clock);
  const claim = claimOf(clock, 'k');
  const answers = await Promise.all([first.journal.claim(claim), first.journal.claim(claim)]);
  expect(answers).toEqual([{ kind: 'mine' }, { kind: 'running' }]);
  await first.journal.claim(claimOf(clock, 'done'));
  await first.journal.finish('w1', 'done', Buffer.from('reply'));
  await first.journal.finish('w1', 'done', Buffer.from('another'));
  await first.close();

  const second = await open(clock);
  expect(await second.journal.claim(claim)).toEqual({ kind: 'lost' });
  expect(await second.journal.claim({ ...claim, isRepeatable: true })).toEqual({ kind: 'mine' });
  expect(await second.journal.claim({ ...claim, isRepeatable: true })).toEqual({ kind: 'running' });
  expect(await second.journal.claim(claimOf(clock, 'done'))).toEqual({ kind: 'done', reply: Buffer.from('reply') });
  expect(await second.journal.claim(claimOf(clock, 'done', { hash: 'other' }))).toEqual({ kind: 'conflict' });
  // Another worker's key of the same name is another key.
  expect(await second.journal.claim(claimOf(clock, 'done', { mailbox: 'w2' }))).toEqual({ kind: 'mine' });
  await second.close();
});

test('B11: a key is forgotten after its time and not before, and never while its call runs', async () => {
  const clock = new FakeClock();
  const store = await open(clock);
  const claim = claimOf(clock, 'k');
  await store.journal.claim(claim);
  await store.journal.finish('w1', 'k', Buffer.from('reply'));
  await store.journal.claim(claimOf(clock, 'running'));
  clock.advance(23 * hourMs);
  expect(await store.journal.claim(claim)).toMatchObject({ kind: 'done' });
  clock.advance(hourMs + 120_000);
  await store.mail.flush();
  expect(await store.journal.claim(claim)).toEqual({ kind: 'mine' });
  expect(await store.journal.claim(claimOf(clock, 'running'))).toEqual({ kind: 'running' });
  await store.journal.finish('w1', 'running', Buffer.from('at last'));
  await expect(store.journal.finish('w1', 'never claimed', Buffer.from('?'))).rejects.toMatchObject({
    code: 'expired',
  });
  await store.close();
});

test('B9: at its bound the journal takes no new key, forgets none, and still takes the replies of those it has', async () => {
  const clock = new FakeClock();
  const store = await open(clock, { callCount: 3 });
  for (const key of ['a', 'b', 'c']) expect(await store.journal.claim(claimOf(clock, key))).toEqual({ kind: 'mine' });
  const refusal = { code: 'insufficient_storage', details: { reason: 'journal_limit', retryAfterMs: 1_000 } };
  await expect(store.journal.claim(claimOf(clock, 'd'))).rejects.toMatchObject(refusal);
  await store.journal.finish('w1', 'a', Buffer.from('reply'));
  expect(await store.journal.claim(claimOf(clock, 'a'))).toMatchObject({ kind: 'done' });
  expect(await store.journal.claim(claimOf(clock, 'b'))).toEqual({ kind: 'running' });
  // Its time is over: there is room for one, without anybody tidying up first.
  clock.jumpWall(25 * hourMs);
  expect(await store.journal.claim(claimOf(clock, 'd'))).toEqual({ kind: 'mine' });
  await expect(store.journal.claim(claimOf(clock, 'e'))).rejects.toMatchObject(refusal);
  await store.close();

  const small = await open(clock, { callBytes: 1_000 });
  for (const key of ['d', 'e']) await small.journal.finish('w1', key, Buffer.alloc(2_000)).catch(() => {});
  await expect(small.journal.claim(claimOf(clock, 'f'))).rejects.toMatchObject(refusal);
  await small.close();
});

test('B9: a mailbox that has its share of the journal is refused new keys, over restarts, and nobody else is', async () => {
  const clock = new FakeClock();
  const refusal = {
    code: 'insufficient_storage',
    message: expect.stringContaining("mailbox 'w1'"),
    details: { reason: 'journal_limit', execution: 'not_executed' },
  };
  const limits = { callCountOfOne: 2, callBytesOfOne: 5_000 };
  const store = await open(clock, limits);
  for (const key of ['a', 'b']) expect(await store.journal.claim(claimOf(clock, key))).toEqual({ kind: 'mine' });
  await expect(store.journal.claim(claimOf(clock, 'c'))).rejects.toMatchObject(refusal);
  await store.journal.finish('w1', 'a', Buffer.from('reply'));
  expect(await store.journal.claim(claimOf(clock, 'a'))).toMatchObject({ kind: 'done' });
  const other = { mailbox: 'w2' };
  expect(await store.journal.claim(claimOf(clock, 'c', other))).toEqual({ kind: 'mine' });
  await store.journal.finish('w2', 'c', Buffer.alloc(5_000));
  await store.close();

  const again = await open(clock, limits);
  await expect(again.journal.claim(claimOf(clock, 'c'))).rejects.toMatchObject(refusal);
  // This one by its bytes.
  await expect(again.journal.claim(claimOf(clock, 'd', other))).rejects.toMatchObject({ details: refusal.details });
  expect(await again.journal.claim(claimOf(clock, 'c', { mailbox: 'w3' }))).toEqual({ kind: 'mine' });
  // Forgotten after its time: there is room again for those who had none.
  clock.jumpWall(25 * hourMs);
  expect(await again.journal.claim(claimOf(clock, 'c'))).toEqual({ kind: 'mine' });
  expect(await again.journal.claim(claimOf(clock, 'd', other))).toEqual({ kind: 'mine' });
  await again.close();
});
