import { expect, test } from 'vitest';
import { requestFrame } from './frame.js';
import { PendingRequests } from './pending-requests.js';

const pending = (id: number, options: { progressToken?: number; isStanding?: boolean } = {}) => {
  const frame = requestFrame(id, 'tools/call', '{}', undefined);
  frame.phase = 'written';
  return { frame, options };
};

test('what stays open is not owed', () => {
  const table = new PendingRequests();
  const [call, listen] = [pending(1), pending(2, { isStanding: true })];
  table.add(call);
  table.add(listen);
  expect([table.size, table.owed]).toEqual([2, 1]);
  table.delete(call);
  expect([table.size, table.owed, table.has(call), table.has(listen)]).toEqual([1, 0, false, true]);
  table.delete(listen);
  expect([table.size, table.owed]).toEqual([0, 0]);
});

test('progress is of the request with that id or token; a text that looks like it is nobody’s', () => {
  const table = new PendingRequests();
  const [first, second] = [pending(7), pending(8, { progressToken: 3 })];
  table.add(first);
  table.add(second);
  const of = (token: string) => table.ofProgress(Buffer.from(`{"progressToken":${token},"progress":1}`));
  expect([of('7'), of('3'), of('8'), of('"7"'), of('9')]).toEqual([first, second, second, undefined, undefined]);
  expect(table.ofProgress(Buffer.from('{"progress":1}'))).toBeUndefined();
  table.delete(second);
  expect(of('3')).toBeUndefined();
});

test('what was not written yet nobody can report on or cancel', () => {
  const table = new PendingRequests();
  const request = pending(7);
  table.add(request);
  const cancel = Buffer.from('{"requestId":7}');
  expect(table.ofCancel(cancel)).toBe(request);
  request.frame.phase = 'queued';
  expect([table.ofCancel(cancel), table.ofProgress(Buffer.from('{"progressToken":7}'))]).toEqual([
    undefined,
    undefined,
  ]);
});
