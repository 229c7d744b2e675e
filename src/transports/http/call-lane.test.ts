import { expect, test } from 'vitest';
import { legacyEra } from '../../../test/fakes/eras.js';
import { requestFrame } from '../../wire/frame.js';
import { CallLane, ConnectionSlots } from './call-lane.js';
import { type CallHost, PostCall } from './post-call.js';

let nextId = 1;
const call = () => new PostCall({} as CallHost, requestFrame(nextId++, 'tools/call', undefined, undefined), legacyEra);

function setup(limit: number) {
  const slots = new ConnectionSlots(limit);
  const sent: PostCall[] = [];
  const lane = new CallLane<PostCall>(slots, (next) => sent.push(next));
  return { slots, lane, sent };
}

test('calls go out in order while there is room, and the next one when a connection is free', () => {
  const { lane, sent } = setup(2);
  const calls = [call(), call(), call(), call()] as const;
  for (const each of calls) lane.add(each);
  expect(sent).toEqual(calls.slice(0, 2));
  lane.released(calls[0]);
  expect(sent).toEqual(calls.slice(0, 3));
  expect(lane.remove(calls[3])).toBe(true);
  expect(lane.remove(calls[1])).toBe(false);
  lane.released(calls[1]);
  expect(sent).toEqual(calls.slice(0, 3));
});

test('W1 a lane is paused until the last hold was released; one that is released twice counts once', () => {
  const { lane, sent } = setup(2);
  const first = lane.hold();
  const second = lane.hold();
  const waiting = [call(), call(), call()];
  for (const each of waiting) lane.add(each);
  first();
  first();
  expect([sent, lane.waiting]).toEqual([[], waiting]);
  second();
  expect(sent).toEqual(waiting.slice(0, 2));
});

test('W1 a connection that is freed while the lane is paused goes to no call of it', () => {
  const { lane, sent } = setup(1);
  const [first, second] = [call(), call()];
  lane.add(first);
  lane.add(second);
  const release = lane.hold();
  lane.released(first);
  expect(sent).toEqual([first]);
  release();
  expect(sent).toEqual([first, second]);
});

test('W2 of lanes that share connections, the first has the freed one', () => {
  const { slots, lane, sent } = setup(1);
  const others: PostCall[] = [];
  const other = new CallLane<PostCall>(slots, (next) => others.push(next));
  const [first, second, third] = [call(), call(), call()];
  other.add(first);
  other.add(second);
  lane.add(third);
  other.released(first);
  expect([sent, others]).toEqual([[third], [first]]);
  lane.released(third);
  expect(others).toEqual([first, second]);
});

/** Calls whose exchange notes that it was given up. */
function streamed(gone: PostCall[]): PostCall {
  const open = call();
  open.exchange = { abort: () => gone.push(open) } as never;
  return open;
}

test('W24 an answered call whose stream stays open gives its connection up when another one waits', () => {
  const { lane, sent } = setup(2);
  const gone: PostCall[] = [];
  const [first, second, third] = [streamed(gone), streamed(gone), call()];
  lane.add(first);
  lane.add(second);
  lane.linger(first);
  expect(gone).toEqual([]);
  lane.add(third);
  expect(gone).toEqual([first]);
  lane.released(first);
  expect(sent).toEqual([first, second, third]);
});

test('W24 a call that is answered while another one waits gives its connection up at once', () => {
  const { lane } = setup(1);
  const gone: PostCall[] = [];
  const first = streamed(gone);
  lane.add(first);
  lane.add(call());
  expect(gone).toEqual([]);
  lane.linger(first);
  expect(gone).toEqual([first]);
});

test('W24 a lane that is closed sends nothing more and gives up open streams', () => {
  const { lane, sent } = setup(1);
  const gone: PostCall[] = [];
  const first = streamed(gone);
  lane.add(first);
  lane.linger(first);
  const release = lane.hold();
  lane.add(call());
  lane.close();
  expect(gone).toContain(first);
  lane.released(first);
  release();
  expect([sent, lane.waiting]).toEqual([[first], []]);
});
