import { expect, test } from 'vitest';
import { FakeClock } from '../../../kernel/fake-clock.js';
import { Envelope, scanEnvelope } from '../../../wire/envelope.js';
import { ClientRequests, initializedWaitMs } from './client-requests.js';

const far = 1_000_000;

function setUp(max = 10, isInitialized = true) {
  const clock = new FakeClock();
  const asks = new ClientRequests(clock, max);
  if (isInitialized) asks.initialized();
  const told: string[] = [];
  const tell = (parts: readonly (string | Uint8Array)[]) => {
    told.push(parts.map(String).join(''));
    return true;
  };
  return { clock, asks, told, tell, owner: {}, gone: new AbortController() };
}

function message(text: string): Envelope {
  const envelope = new Envelope();
  const bytes = Buffer.from(text);
  expect(scanEnvelope(bytes, 0, bytes.length, envelope)).toBeUndefined();
  return envelope;
}

test('an answer goes to the question with its id, once', async () => {
  const { clock, asks, told, tell, owner } = setUp();
  const first = asks.ask(owner, tell, 'a', '{"x":1}', { deadlineAtMs: far });
  const second = asks.ask(owner, tell, 'b', undefined, { deadlineAtMs: far });
  expect(told).toEqual([
    '{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1}}',
    '{"jsonrpc":"2.0","id":2,"method":"b"}',
  ]);
  expect(asks.answered(message('{"jsonrpc":"2.0","id":"2","result":{}}'))).toBe(false);
  expect(asks.answered(message('{"jsonrpc":"2.0","id":3,"result":{}}'))).toBe(false);
  expect(asks.answered(message('{"jsonrpc":"2.0","id":2,"result":{"y":2}}'))).toBe(true);
  expect(asks.answered(message('{"jsonrpc":"2.0","id":2,"result":{"y":3}}'))).toBe(false);
  expect(asks.answered(message('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}'))).toBe(true);
  expect([(await second).bytes.toString(), (await first).kind]).toEqual(['{"y":2}', 'error']);
  expect([asks.size, clock.pendingTimers]).toEqual([0, 0]);
});

test.each([
  ['the deadline', 'timeout', ({ clock }: ReturnType<typeof setUp>) => clock.advance(far)],
  ['the abort signal', 'cancelled', ({ gone }: ReturnType<typeof setUp>) => gone.abort()],
  [
    'the end of the request that caused it',
    'cancelled',
    ({ asks, owner }: ReturnType<typeof setUp>) => asks.withdraw(owner),
  ],
  ['the end of the client', 'transport', ({ asks }: ReturnType<typeof setUp>) => asks.end()],
])('a question is ended by %s; the client is notified, and nothing is left behind', async (_name, code, happen) => {
  const all = setUp();
  const { asks, told, tell, owner, gone, clock } = all;
  const refused = expect(
    asks.ask(owner, tell, 'a', undefined, { deadlineAtMs: far, signal: gone.signal }),
  ).rejects.toMatchObject({
    code,
  });
  happen(all);
  await refused;
  expect(told[1]).toBe('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}');
  expect([asks.size, clock.pendingTimers]).toEqual([0, 0]);
});

test('a question beyond the bound or without a client is refused at once', async () => {
  const { asks, tell, owner } = setUp(1);
  const deaf = () => false;
  await expect(asks.ask(owner, deaf, 'a', undefined, { deadlineAtMs: far })).rejects.toMatchObject({
    code: 'transport',
  });
  const open = asks.ask(owner, tell, 'a', undefined, { deadlineAtMs: far });
  await expect(asks.ask(owner, tell, 'b', undefined, { deadlineAtMs: far })).rejects.toMatchObject({
    code: 'overloaded',
  });
  asks.withdraw({});
  expect(asks.size).toBe(1);
  asks.withdraw(owner);
  await expect(open).rejects.toMatchObject({ code: 'cancelled' });
});

test('E13 questions wait until the client has sent initialized; then each is sent once, in order', async () => {
  const { clock, asks, told, tell, owner } = setUp(10, false);
  const first = asks.ask(owner, tell, 'elicitation/create', '{"x":1}', { deadlineAtMs: far });
  const second = asks.ask(owner, tell, 'roots/list', undefined, { deadlineAtMs: far });
  expect([told, asks.size]).toEqual([[], 2]);
  clock.advance(initializedWaitMs - 1);
  asks.initialized();
  asks.initialized();
  expect(told).toEqual([
    '{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"x":1}}',
    '{"jsonrpc":"2.0","id":2,"method":"roots/list"}',
  ]);
  clock.advance(initializedWaitMs);
  asks.answered(message('{"jsonrpc":"2.0","id":2,"result":{}}'));
  asks.answered(message('{"jsonrpc":"2.0","id":1,"result":{}}'));
  await Promise.all([first, second]);
  expect([asks.size, clock.pendingTimers]).toEqual([0, 0]);
});

test.each([
  [
    'its client never sends initialized',
    'timeout',
    ({ clock }: ReturnType<typeof setUp>) => clock.advance(initializedWaitMs),
  ],
  ['its request ends first', 'cancelled', ({ asks, owner }: ReturnType<typeof setUp>) => asks.withdraw(owner)],
  ['its client disconnects first', 'transport', ({ asks }: ReturnType<typeof setUp>) => asks.end()],
])('E13 a question that waits for initialized fails when %s, and nothing is written', async (_name, code, happen) => {
  const all = setUp(10, false);
  const { asks, told, tell, owner, clock } = all;
  const refused = expect(asks.ask(owner, tell, 'a', undefined, { deadlineAtMs: far })).rejects.toMatchObject({ code });
  happen(all);
  await refused;
  asks.initialized();
  expect([told, asks.size, clock.pendingTimers]).toEqual([[], 0, 0]);
});
