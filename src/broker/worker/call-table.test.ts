import { expect, test } from 'vitest';
import { FakeConnection, lost } from '../../../test/fakes/fake-connection.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { requestDigest } from '../protocol/messages.js';
import { errorBody, resultBody } from '../protocol/reply-body.js';
import type { NewCall } from './call-table.js';
import { CallTable } from './call-table.js';
import type { WorkerConnection } from './connection.js';

const result = (text: string): Buffer => resultBody(Buffer.from(`{"text":"${text}"}`), 'legacy');

class TestedTable extends CallTable {
  override use(connection: WorkerConnection | undefined): void {
    if (connection instanceof FakeConnection) connection.heard = (message) => this.heard(message);
    super.use(connection);
  }

  replied(key: string, body: Buffer, digest?: string): void {
    this.heard({ op: 'reply', key, body, digest });
  }
}

function rig(options: { connectionWaitMs?: number } = {}) {
  const clock = new FakeClock();
  let staleCount = 0;
  const table = new TestedTable({
    clock,
    connectionWaitMs: options.connectionWaitMs,
    stale: () => {
      staleCount++;
    },
  });
  const outcomes: Record<string, string> = {};
  const settle = () => clock.advanceAsync(0);
  const start = (key: string, deadlineMs = 60_000, changes: Partial<NewCall> = {}) =>
    table.start(
      {
        ...{ key, server: 's', tool: 't', args: Buffer.from('{}'), isCallersKey: false, wantsProgress: false },
        ...{ manifestRevision: undefined, trace: undefined },
        ...changes,
      },
      {
        deadlineAtMs: clock.nowMs() + deadlineMs,
        onProgress: undefined,
        done: (outcome) => {
          outcomes[key] = isHostError(outcome)
            ? [outcome.code, outcome.details.execution].filter(Boolean).join(' ')
            : outcome.bytes.toString();
        },
      },
    );
  return { clock, table, outcomes, settle, start, stale: () => staleCount };
}

/** A call with a receipt over a connection. */
async function received(options = {}) {
  const made = rig(options);
  const connection = new FakeConnection();
  made.table.use(connection);
  const giveUp = made.start('k1');
  connection.last('k1').receive();
  await made.settle();
  return { ...made, connection, giveUp };
}

test('a call is sent once, and ends with its reply; the reply is acknowledged', async () => {
  const { clock, table, outcomes, connection } = await received();
  table.replied('k1', result('done'));
  expect(outcomes).toEqual({ k1: '{"text":"done"}' });
  expect(connection.requests).toMatchObject([{ key: 'k1', sentBefore: undefined, deadlineMs: 60_000 }]);
  await clock.advanceAsync(10);
  expect(connection.ackedKeys).toEqual([['k1']]);
});

test('D-47 acknowledgements are sent together, also those of replies for which no caller waits', async () => {
  const { clock, table, connection } = await received();
  for (const key of ['k1', 'other', 'k1']) table.replied(key, result('x'));
  expect(table.usage.droppedReplies).toBe(2);
  await clock.advanceAsync(10);
  expect(connection.ackedKeys).toEqual([['k1', 'other']]);
  for (let at = 0; at < 40; at++) table.replied(`many-${at}`, result('x'));
  expect(connection.ackedKeys[1]).toHaveLength(32);
});

test('replies are acknowledged again over the next connection: the host may have died before it removed the replies', async () => {
  const { clock, table, connection } = await received();
  for (let at = 0; at < 2_000; at++) table.replied(`k${at}`, result('x'));
  await clock.advanceAsync(10);
  expect(connection.ackedKeys.flat()).toHaveLength(2_000);
  const next = new FakeConnection();
  table.use(next);
  expect(next.ackedKeys.flat()).toEqual(Array.from({ length: 1_024 }, (_, at) => `k${976 + at}`));
});

test('acknowledgements wait for the next connection', async () => {
  const { clock, table } = await received();
  table.use(undefined);
  table.replied('k1', result('x'));
  await clock.advanceAsync(1_000);
  const next = new FakeConnection();
  table.use(next);
  expect(next.ackedKeys).toEqual([['k1']]);
});

test('a call without a receipt is sent again over the next connection, with the id of its first store', async () => {
  const { clock, table, settle, start } = rig();
  const [first, second, third] = [new FakeConnection('a'), new FakeConnection('b'), new FakeConnection('c')];
  table.use(first);
  start('k1');
  table.use(undefined);
  await settle();
  await clock.advanceAsync(200);
  table.use(second);
  table.use(undefined);
  await settle();
  table.use(third);
  expect(second.requests).toMatchObject([{ sentBefore: { storeId: 'a', hasReceipt: false }, deadlineMs: 59_800 }]);
  expect(third.requests).toMatchObject([{ sentBefore: { storeId: 'a', hasReceipt: false } }]);
});

test('a call whose sending certainly did not arrive is treated as never sent', async () => {
  const { table, outcomes, settle, start, clock } = rig({ connectionWaitMs: 5_000 });
  const [first, second] = [new FakeConnection('a'), new FakeConnection('b')];
  table.use(first);
  start('k1');
  start('k2', 3_000);
  first.isUnread = true;
  table.use(undefined);
  await clock.advanceAsync(3_000);
  expect(outcomes).toEqual({ k2: 'timeout not_executed' });
  table.use(second);
  expect(second.requests).toMatchObject([{ key: 'k1', sentBefore: undefined }]);
  second.last('k1').receive();
  await settle();
  table.use(undefined);
  const third = new FakeConnection('c');
  table.use(third);
  expect(third.requests).toEqual([]);
});

test('AC-BR2 after a reconnect a call with a receipt is asked for at once, and then every 5 s', async () => {
  const { clock, table, outcomes } = await received();
  table.use(undefined);
  const next = new FakeConnection();
  table.use(next);
  expect(next.sent).toEqual([]);
  expect(next.asked).toMatchObject([{ keys: ['k1'] }]);
  next.asked[0]?.answer({ running: ['k1'], resend: [] });
  await clock.advanceAsync(4_999);
  expect(next.asked).toHaveLength(1);
  await clock.advanceAsync(1);
  expect(next.asked).toHaveLength(2);
  table.replied('k1', result('late'));
  next.asked[1]?.answer({ running: [], resend: [] });
  await clock.advanceAsync(20_000);
  expect(next.asked).toHaveLength(2);
  expect(outcomes).toEqual({ k1: '{"text":"late"}' });
});

test('a call that the host does not know is sent again, and says that it has a receipt', async () => {
  const { settle, table } = await received();
  table.use(undefined);
  const next = new FakeConnection('store-2');
  table.use(next);
  next.asked[0]?.answer({ running: [], resend: ['k1'] });
  await settle();
  expect(next.requests).toMatchObject([{ key: 'k1', sentBefore: { storeId: 'store-1', hasReceipt: true } }]);
});

test('an ask without an answer is repeated, and the call is not sent again', async () => {
  const { connection, clock } = await received();
  await clock.advanceAsync(5_000);
  await clock.advanceAsync(5_000);
  expect(connection.asked).toHaveLength(2);
  expect(connection.requests).toHaveLength(1);
});

test('an answer that is slower than the next ask still counts: each of them may be', async () => {
  const { connection, clock } = await received();
  await clock.advanceAsync(11_000);
  expect(connection.asked).toHaveLength(2);
  connection.asked[0]?.answer({ running: [], resend: ['k1'] });
  expect(connection.requests).toHaveLength(2);
});

test('an ask that brings replies is repeated at once: more of them may wait', async () => {
  const { table, settle, start, connection, clock } = await received();
  for (const key of ['k2', 'k3']) {
    start(key);
    connection.last(key).receive();
  }
  await clock.advanceAsync(5_000);
  expect(connection.asked.map(({ keys }) => keys)).toEqual([['k1', 'k2', 'k3']]);
  table.replied('k1', result('x'));
  connection.asked[0]?.answer({ running: ['k2', 'k3'], resend: [] });
  await settle();
  expect(connection.asked.map(({ keys }) => keys)[1]).toEqual(['k2', 'k3']);
  connection.asked[1]?.answer({ running: ['k2', 'k3'], resend: [] });
  await settle();
  expect(connection.asked).toHaveLength(2);
});

test('a refusal of the only sending is final, and may say that the manifest is out of date', async () => {
  const { table, outcomes, settle, start, stale, clock } = rig();
  const connection = new FakeConnection();
  table.use(connection);
  start('k1');
  connection.last('k1').fail(new HostError('tool_not_found', 'no such tool', { execution: 'not_executed' }));
  await settle();
  expect(outcomes).toEqual({ k1: 'tool_not_found not_executed' });
  expect(stale()).toBe(1);
  await clock.advanceAsync(100_000);
  expect(connection.requests).toHaveLength(1);
});

test('a refusal of a call that may have arrived before is not final: it is sent until its deadline', async () => {
  const { table, outcomes, settle, start, clock } = rig();
  const [first, second] = [new FakeConnection('a'), new FakeConnection('b')];
  table.use(first);
  start('k1', 10_000);
  table.use(undefined);
  await settle();
  table.use(second);
  second.last('k1').fail(new HostError('overloaded', 'full', { retryAfterMs: 3_000 }));
  await clock.advanceAsync(2_999);
  expect(second.requests).toHaveLength(1);
  await clock.advanceAsync(1);
  expect(second.requests).toHaveLength(2);
  second.last('k1').fail(new HostError('overloaded', 'full'));
  await clock.advanceAsync(1_000);
  expect(second.requests).toHaveLength(3);
  expect(outcomes).toEqual({});
  await clock.advanceAsync(6_000);
  expect(outcomes).toEqual({ k1: 'timeout uncertain' });
  expect(second.cancelled).toEqual(['k1']);
});

test('AC-BR9 a sending without a receipt for 10 s is repeated after 1 s over the same connection', async () => {
  const { table, start, clock, outcomes } = rig();
  const connection = new FakeConnection();
  table.use(connection);
  start('k1');
  await clock.advanceAsync(10_999);
  expect(connection.requests).toHaveLength(1);
  await clock.advanceAsync(1);
  expect(connection.requests).toHaveLength(2);
  expect(connection.last('k1').request.sentBefore).toEqual({ storeId: 'store-1', hasReceipt: false });
  table.replied('k1', result('once'));
  expect(outcomes).toEqual({ k1: '{"text":"once"}' });
});

test('the 10 s for a receipt begin when the call has left, because a slow network would cause repeated sendings', async () => {
  const { table, start, clock } = rig();
  const connection = new FakeConnection();
  connection.isSlow = true;
  table.use(connection);
  start('k1');
  await clock.advanceAsync(30_000);
  expect(connection.requests).toHaveLength(1);
  connection.last('k1').leave();
  await clock.advanceAsync(10_999);
  expect(connection.requests).toHaveLength(1);
  await clock.advanceAsync(1);
  expect(connection.requests).toHaveLength(2);
});

test('a host that refuses because it stops, or begins to serve, gets the call again', async () => {
  const { table, start, clock } = rig();
  const connection = new FakeConnection();
  table.use(connection);
  start('k1');
  connection.last('k1').fail(lost('not_executed'));
  await clock.advanceAsync(1_000);
  table.heard({ op: 'serving' });
  await clock.advanceAsync(0);
  const sentBefore = { storeId: 'store-1', hasReceipt: false };
  expect(connection.requests).toMatchObject([{ sentBefore: undefined }, { sentBefore: undefined }, { sentBefore }]);
});

test('a call that an ended connection did not take is treated as never sent', async () => {
  const { table, start, outcomes } = rig();
  const [first, second] = [new FakeConnection('a'), new FakeConnection('b')];
  table.use(first);
  first.isOver = true;
  start('k1');
  table.use(second);
  expect(second.requests).toMatchObject([{ key: 'k1', sentBefore: undefined }]);
  first.isOver = true;
  second.isOver = true;
  start('k2')();
  expect(outcomes).toEqual({ k2: 'cancelled not_executed' });
});

test('AC-BR11 a call past its deadline is cancelled, and its late reply is acknowledged and dropped', async () => {
  const { table, clock, connection, outcomes } = await received();
  await clock.advanceAsync(60_000);
  expect(outcomes).toEqual({ k1: 'timeout uncertain' });
  expect(connection.cancelled).toEqual(['k1']);
  table.replied('k1', result('late'));
  await clock.advanceAsync(10);
  expect(connection.ackedKeys).toEqual([['k1']]);
  expect(outcomes).toEqual({ k1: 'timeout uncertain' });
});

test('D-45 a cancel is repeated over each new connection until a reply comes, or the deadline', async () => {
  const { table, giveUp, clock } = await received();
  table.use(undefined);
  giveUp();
  const [second, third, fourth] = [new FakeConnection(), new FakeConnection(), new FakeConnection()];
  table.use(second);
  table.use(undefined);
  table.use(third);
  expect([second.cancelled, third.cancelled]).toEqual([['k1'], ['k1']]);
  expect(third.sent).toEqual([]);
  table.replied('k1', errorBody(new HostError('cancelled', 'cancelled')));
  table.use(undefined);
  table.use(fourth);
  expect(fourth.cancelled).toEqual([]);
  await clock.advanceAsync(0);
});

test('D-45 a cancel is repeated over one connection too, every 5 s, because the host may have missed it', async () => {
  const { clock, table, giveUp, connection } = await received();
  giveUp();
  await clock.advanceAsync(10_000);
  expect(connection.cancelled).toEqual(['k1', 'k1', 'k1']);
  table.replied('k1', errorBody(new HostError('cancelled', 'cancelled')));
  await clock.advanceAsync(10_000);
  expect(connection.cancelled).toHaveLength(3);
});

test('D-45 a cancel is forgotten at the deadline of its call', async () => {
  const { table, giveUp, clock } = await received();
  table.use(undefined);
  giveUp();
  await clock.advanceAsync(60_000);
  const next = new FakeConnection();
  table.use(next);
  expect(next.cancelled).toEqual([]);
});

test('a call that was never sent is not cancelled at the host', async () => {
  const { table, start, outcomes } = rig();
  start('k1')();
  const connection = new FakeConnection();
  table.use(connection);
  expect(outcomes).toEqual({ k1: 'cancelled not_executed' });
  expect([connection.cancelled, connection.sent]).toEqual([[], []]);
});

test('a call that was never sent waits `connectionWaitMs` for a connection', async () => {
  const { start, outcomes, clock } = rig({ connectionWaitMs: 15_000 });
  start('k1');
  await clock.advanceAsync(14_999);
  expect(outcomes).toEqual({});
  await clock.advanceAsync(1);
  expect(outcomes).toEqual({ k1: 'reconnecting not_executed' });
});

test('callers with one key share one call, which is cancelled when both gave up', async () => {
  const { table, start, outcomes } = rig();
  const connection = new FakeConnection();
  table.use(connection);
  const one = start('k1', 60_000, { isCallersKey: true });
  const two = start('k1', 60_000, { isCallersKey: true });
  start('k1', 60_000, { isCallersKey: true, args: Buffer.from('{"x":1}') });
  expect(outcomes).toEqual({ k1: 'key_conflict not_executed' });
  expect(connection.requests).toHaveLength(1);
  one();
  expect(connection.cancelled).toEqual([]);
  two();
  expect(connection.cancelled).toEqual(['k1']);
});

test('at most 192 calls are sent at a time; the others follow in order', async () => {
  const { table, start, settle } = rig();
  const connection = new FakeConnection();
  table.use(connection);
  for (let at = 0; at < 200; at++) start(`k${at}`);
  expect(connection.requests).toHaveLength(192);
  await settle();
  table.replied('k7', result('x'));
  expect(connection.requests.at(-1)?.key).toBe('k192');
  table.use(undefined);
  const next = new FakeConnection();
  table.use(next);
  expect(next.requests).toHaveLength(192);
});

test('a call that waits and is past its deadline does not take the turn of the next one', async () => {
  const { table, start, settle } = rig();
  const connection = new FakeConnection();
  table.use(connection);
  for (let at = 0; at < 192; at++) start(`k${at}`);
  start('late', 0.5);
  start('next');
  await settle();
  table.replied('k7', result('x'));
  expect(connection.requests.at(-1)?.key).toBe('next');
});

test('D-44 calls and their bytes are bounded', () => {
  const { table } = rig();
  const releases = Array.from({ length: 1_024 }, () => table.reserve(1));
  expect(() => table.reserve(1)).toThrow('1024 calls in flight');
  for (const release of releases) release();
  table.reserve(64 * 1024 * 1024);
  expect(() => table.reserve(1)).toThrow('bytes of arguments');
});

test('a reply that cannot be read ends the call as uncertain', async () => {
  const { table, outcomes } = await received();
  table.replied('k1', Buffer.from('{"what":1}'));
  expect(outcomes).toEqual({ k1: 'protocol_error uncertain' });
});

test('closing ends all calls, and cancels those that may have arrived', async () => {
  const { table, outcomes, start, connection } = await received();
  start('k2');
  table.fail((call, execution) => new HostError('cancelled', `closed ${call.key}`, { execution }));
  expect(outcomes).toEqual({ k1: 'cancelled uncertain', k2: 'cancelled uncertain' });
  expect(connection.cancelled).toEqual(['k1', 'k2']);
});

test('the id of the first store stays with a call over all stores that it is sent to', async () => {
  const { table, settle, start } = rig();
  const stores = ['a', 'b', 'c'].map((id) => new FakeConnection(id));
  for (const store of stores) {
    table.use(store);
    if (store.storeId === 'a') start('k1');
    table.use(undefined);
    await settle();
  }
  const claims = stores.map((store) => store.requests[0]?.sentBefore?.storeId);
  expect(claims).toEqual([undefined, 'a', 'a']);
});

test('a call that a stopping host did not begin is sent again as a new one, with another key', async () => {
  const { clock, table, outcomes, connection } = await received();
  const stopping = { reason: 'stopping', execution: 'not_executed' } as const;
  table.replied('k1', errorBody(new HostError('overloaded', 'the host is stopping', stopping)));
  expect([outcomes, table.usage.droppedReplies]).toEqual([{}, 0]);
  await clock.advanceAsync(1_000);
  const [, again] = connection.requests;
  expect(again).toMatchObject({ sentBefore: undefined, deadlineMs: 59_000 });
  expect(again?.key).not.toBe('k1');
  table.replied(again?.key ?? '', result('done'));
  expect(outcomes).toEqual({ k1: '{"text":"done"}' });
});

test("a caller's key is not replaced: the caller is told that the call did not run", async () => {
  const { table, outcomes, settle, start } = rig();
  const connection = new FakeConnection();
  table.use(connection);
  start('own', 60_000, { isCallersKey: true });
  connection.last('own').receive();
  await settle();
  const stopping = { reason: 'stopping', execution: 'not_executed' } as const;
  table.replied('own', errorBody(new HostError('overloaded', 'the host is stopping', stopping)));
  expect(outcomes).toEqual({ own: 'overloaded not_executed' });
});

test("the late reply to a cancelled call does not reach a later call with the same caller's key", async () => {
  const { table, outcomes, settle, start } = rig();
  const connection = new FakeConnection();
  table.use(connection);
  const own = { isCallersKey: true };
  const giveUp = start('own', 60_000, own);
  connection.last('own').receive();
  await settle();
  giveUp();
  outcomes.own = '';
  const args = Buffer.from('{"n":2}');
  start('own', 60_000, { ...own, args });
  table.replied('own', result('first'), requestDigest('s', 't', Buffer.from('{}')));
  expect(outcomes).toEqual({ own: '' });
  table.replied('own', result('second'), requestDigest('s', 't', args));
  expect(outcomes).toEqual({ own: '{"text":"second"}' });
});

test('a call that ended before its message left has no timer', async () => {
  const { table, start, clock, outcomes } = rig();
  const connection = new FakeConnection();
  connection.isSlow = true;
  table.use(connection);
  const giveUp = start('k1');
  giveUp();
  await clock.advanceAsync(60_000);
  const timers = clock.pendingTimers;
  connection.last('k1').leave();
  expect([outcomes, clock.pendingTimers]).toEqual([{ k1: 'cancelled uncertain' }, timers]);
});
