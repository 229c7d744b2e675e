import { expect, test } from 'vitest';
import { legacyEra } from '../../../test/fakes/eras.js';
import { requestFrame } from '../../wire/channel.js';
import { CallQueue, ConnectionSlots } from './call-queue.js';
import { type CallHost, PostCall } from './post-call.js';

let nextId = 1;
const call = () => new PostCall({} as CallHost, requestFrame(nextId++, 'tools/call', undefined, undefined), legacyEra);

function setup(limit: number) {
  const slots = new ConnectionSlots(limit);
  const sent: PostCall[] = [];
  const queue = new CallQueue<PostCall>(slots, (next) => sent.push(next));
  return { slots, queue, sent };
}

test('calls are sent in order while connections are free, and the next call when one becomes free', () => {
  const { queue, sent } = setup(2);
  const calls = [call(), call(), call(), call()] as const;
  for (const each of calls) queue.add(each);
  expect(sent).toEqual(calls.slice(0, 2));
  queue.released(calls[0]);
  expect(sent).toEqual(calls.slice(0, 3));
  expect(queue.remove(calls[3])).toBe(true);
  expect(queue.remove(calls[1])).toBe(false);
  queue.released(calls[1]);
  expect(sent).toEqual(calls.slice(0, 3));
});

test('W1 a queue is paused until the last hold is released; releasing one hold twice counts once', () => {
  const { queue, sent } = setup(2);
  const first = queue.hold();
  const second = queue.hold();
  const waiting = [call(), call(), call()];
  for (const each of waiting) queue.add(each);
  first();
  first();
  expect([sent, queue.waiting]).toEqual([[], waiting]);
  second();
  expect(sent).toEqual(waiting.slice(0, 2));
});

test('W1 a connection that is freed while the queue is paused is not used for its calls', () => {
  const { queue, sent } = setup(1);
  const [first, second] = [call(), call()];
  queue.add(first);
  queue.add(second);
  const release = queue.hold();
  queue.released(first);
  expect(sent).toEqual([first]);
  release();
  expect(sent).toEqual([first, second]);
});

test('W5 calls that waited in a held queue get the connections of answered calls whose streams linger', () => {
  const { queue, sent } = setup(2);
  const [first, second, third] = [call(), call(), call()];
  const givenUp: PostCall[] = [];
  for (const each of [first, second]) each.giveUp = () => void givenUp.push(each);
  queue.add(first);
  queue.linger(first);
  const release = queue.hold();
  queue.add(second);
  queue.add(third);
  release();
  expect([sent, givenUp]).toEqual([[first, second], [first]]);
  queue.released(first);
  expect(sent).toEqual([first, second, third]);
});

test('W2 if several queues share connections, the first one gets the freed connection', () => {
  const { slots, queue, sent } = setup(1);
  const others: PostCall[] = [];
  const other = new CallQueue<PostCall>(slots, (next) => others.push(next));
  const [first, second, third] = [call(), call(), call()];
  other.add(first);
  other.add(second);
  queue.add(third);
  other.released(first);
  expect([sent, others]).toEqual([[third], [first]]);
  queue.released(third);
  expect(others).toEqual([first, second]);
});

/** Calls whose exchange records that it was aborted. */
function streamed(gone: PostCall[]): PostCall {
  const open = call();
  open.exchange = { abort: () => gone.push(open) } as never;
  return open;
}

test('W24 an answered call whose stream stays open releases its connection when another call waits', () => {
  const { queue, sent } = setup(2);
  const gone: PostCall[] = [];
  const [first, second, third] = [streamed(gone), streamed(gone), call()];
  queue.add(first);
  queue.add(second);
  queue.linger(first);
  expect(gone).toEqual([]);
  queue.add(third);
  expect(gone).toEqual([first]);
  queue.released(first);
  expect(sent).toEqual([first, second, third]);
});

test('W24 a call that is answered while another call waits releases its connection at once', () => {
  const { queue } = setup(1);
  const gone: PostCall[] = [];
  const first = streamed(gone);
  queue.add(first);
  queue.add(call());
  expect(gone).toEqual([]);
  queue.linger(first);
  expect(gone).toEqual([first]);
});

test('a call that is answered while others still wait for a second connection releases its own at once', () => {
  const { queue, sent } = setup(1);
  const gone: PostCall[] = [];
  const [first, second, third] = [call(), streamed(gone), call()];
  for (const each of [first, second, third]) queue.add(each);
  queue.released(first);
  expect(sent).toEqual([first, second]);
  queue.linger(second);
  expect(gone).toEqual([second]);
});

test('the stream of an answered call may stay open again after all waiting calls were sent', () => {
  const { queue } = setup(1);
  const gone: PostCall[] = [];
  const [first, second, third] = [call(), call(), streamed(gone)];
  for (const each of [first, second]) queue.add(each);
  queue.released(first);
  queue.released(second);
  queue.add(third);
  queue.linger(third);
  expect(gone).toEqual([]);
});

test('a freed connection that a queue has taken is not offered to the queues after it', () => {
  const slots = new ConnectionSlots(1);
  const offered: number[] = [];
  slots.subscribe(() => offered.push(1));
  slots.subscribe(() => offered.push(slots.take() ? 2 : 0));
  slots.subscribe(() => offered.push(3));
  slots.take();
  slots.release();
  expect(offered).toEqual([1, 2]);
});

test('W24 a closed queue sends nothing more and aborts open streams', () => {
  const { queue, sent } = setup(1);
  const gone: PostCall[] = [];
  const first = streamed(gone);
  queue.add(first);
  queue.linger(first);
  const release = queue.hold();
  queue.add(call());
  queue.close();
  expect(gone).toContain(first);
  queue.released(first);
  release();
  expect([sent, queue.waiting]).toEqual([[first], []]);
});
