import { expect, test } from 'vitest';
import { requestFrame } from './channel.js';
import { type PendingRequest, PendingRequests } from './pending-requests.js';

const pending = (id: number, options: { progressToken?: number; isLongLived?: boolean } = {}, deadlineAtMs = 0) => {
  const frame = requestFrame(id, 'tools/call', '{}', undefined);
  frame.phase = 'written';
  return { frame, options, deadlineAtMs } as unknown as PendingRequest;
};

test('a long-lived request does not count as unanswered', () => {
  const table = new PendingRequests();
  const [call, listen] = [pending(1), pending(2, { isLongLived: true })];
  table.add(call);
  table.add(listen);
  expect([table.size, table.unanswered]).toEqual([2, 1]);
  table.delete(call);
  expect([table.size, table.unanswered, table.has(call), table.has(listen)]).toEqual([1, 0, false, true]);
  table.delete(listen);
  expect([table.size, table.unanswered]).toEqual([0, 0]);
});

test('probes do not hide other requests that are unanswered', () => {
  const table = new PendingRequests();
  for (const request of [pending(1), pending(2, { isLongLived: true })]) table.add(request);
  table.add({ ...pending(3), frame: requestFrame(3, 'ping', undefined, undefined) });
  expect([table.unansweredBesides('ping'), table.unansweredBesides('tools/call')]).toEqual([1, 1]);
});

test('progress belongs to the request with that id or token; a string that looks like an id belongs to none', () => {
  const table = new PendingRequests();
  const [first, second] = [pending(7), pending(8, { progressToken: 3 })];
  table.add(first);
  table.add(second);
  const of = (token: string) => table.findByProgress(Buffer.from(`{"progressToken":${token},"progress":1}`));
  expect([of('7'), of('3'), of('8'), of('"7"'), of('9')]).toEqual([first, second, second, undefined, undefined]);
  expect(table.findByProgress(Buffer.from('{"progress":1}'))).toBeUndefined();
  table.delete(second);
  expect(of('3')).toBeUndefined();
});

test('progress and cancels for an unwritten request are ignored', () => {
  const table = new PendingRequests();
  const request = pending(7);
  table.add(request);
  const cancel = Buffer.from('{"requestId":7}');
  expect(table.findByCancel(cancel)).toBe(request);
  request.frame.phase = 'queued';
  expect([table.findByCancel(cancel), table.findByProgress(Buffer.from('{"progressToken":7}'))]).toEqual([
    undefined,
    undefined,
  ]);
});

test('requests past their deadline are split by whether they were sent, with the earliest deadline of the others', () => {
  const table = new PendingRequests();
  const [unsent, sent, later, latest] = [10, 11, 30, 40].map((atMs, index) => pending(index + 1, {}, atMs));
  for (const request of [unsent, sent, later, latest]) if (request) table.add(request);
  if (unsent) unsent.frame.phase = 'queued';
  expect(table.due(11)).toEqual({ unsent: [unsent], sent: [sent], nextAtMs: 30 });
});

test.each([
  ['a call that was sent', true, 'tools/call', 'written', {}],
  ['a call that is being written', true, 'tools/call', 'writing', {}],
  ['a call that was not sent', false, 'tools/call', 'queued', {}],
  ['a ping', false, 'ping', 'written', {}],
  ['a request that stays open', false, 'subscriptions/listen', 'written', { isLongLived: true }],
] as const)('with %s the server is at work: %s', (_what, isAtWork, method, phase, options) => {
  const table = new PendingRequests();
  const frame = requestFrame(1, method, '{}', undefined);
  frame.phase = phase;
  table.add({ frame, options, deadlineAtMs: 0 } as unknown as PendingRequest);
  expect(table.isAtWork).toBe(isAtWork);
});
