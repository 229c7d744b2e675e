import { expect, test } from 'vitest';
import type { SseStream } from '../../http/sse-stream.js';
import { EventBudget, EventStore, EventStream } from './event-stream.js';

const tools = 'notifications/tools/list_changed';
const prompts = 'notifications/prompts/list_changed';

/** A connection that records the events that are written to it. */
class FakeReader {
  isOpen = true;
  isStalled = false;
  onDrain: (() => void) | undefined;
  onEnd: (() => void) | undefined;
  readonly said: string[] = [];

  write(text: Buffer | string): boolean {
    if (this.isOpen) this.said.push(text.toString());
    return this.isOpen;
  }

  end(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.onEnd?.();
  }

  drain(): void {
    this.isStalled = false;
    this.onDrain?.();
  }

  /** Ids and methods of the written events. */
  get events(): string[] {
    return this.said.map((text) => `${/^id: (.*)$/m.exec(text)?.[1]} ${/"method":"([^"]*)"/.exec(text)?.[1]}`);
  }
}

function setUp() {
  const budget = new EventBudget(100_000);
  const stream = new EventStream(0, new EventStore(budget, 100, 100_000), { last: 0 });
  const attach = (afterSeq?: number) => {
    const reader = new FakeReader();
    stream.attach(reader as unknown as SseStream, afterSeq);
    return reader;
  };
  const update = (n: number) => stream.send([`{"jsonrpc":"2.0","method":"updated","params":{"n":${n}}}`]);
  return { budget, stream, attach, update };
}

test('W18 a stream that was never read stores no event; its reader gets one change of each list', () => {
  const { budget, stream, attach, update } = setUp();
  for (let n = 0; n < 300; n++) {
    stream.announce(tools);
    stream.announce(prompts);
    update(n);
  }
  expect([budget.events, budget.used]).toEqual([0, 0]);
  expect(attach().events).toEqual([`0-1 ${tools}`, `0-2 ${prompts}`]);
});

test('W18 300 changes while the stream is lost become one, and store no event', () => {
  const { budget, stream, attach } = setUp();
  attach().end();
  for (let n = 0; n < 300; n++) stream.announce(tools);
  expect([budget.events, budget.used]).toEqual([0, 0]);
  const reader = attach();
  expect(reader.events).toEqual([`0-1 ${tools}`]);
  stream.announce(tools);
  expect(reader.events).toEqual([`0-1 ${tools}`, `0-2 ${tools}`]);
});

test('W18 a change that was written to a lost connection is sent again', () => {
  const { stream, attach, update } = setUp();
  const first = attach();
  update(1);
  stream.announce(tools);
  update(2);
  stream.announce(tools);
  expect(first.events).toEqual(['0-1 updated', `0-2 ${tools}`, '0-3 updated', `0-4 ${tools}`]);
  // The client has seen the first event only. The second change replaces the first one.
  expect(attach(1).events).toEqual(['0-3 updated', `0-4 ${tools}`]);
  expect(attach(4).events).toEqual([]);
});

test('W18 a change that is still to be sent is not sent twice', () => {
  const { stream, attach } = setUp();
  attach();
  stream.announce(tools);
  stream.end();
  stream.announce(tools);
  expect(attach(0).events).toEqual([`0-2 ${tools}`]);
});

test('W18 a slow reader gets one change of each list after it has read the earlier events', () => {
  const { stream, attach } = setUp();
  const reader = attach();
  reader.isStalled = true;
  for (let n = 0; n < 300; n++) stream.announce(tools);
  stream.announce(prompts);
  expect(reader.events).toEqual([]);
  reader.drain();
  expect(reader.events).toEqual([`0-1 ${tools}`, `0-2 ${prompts}`]);
});

test('W18 a stream releases a connection that has ended', () => {
  const { stream, attach } = setUp();
  const reader = attach();
  expect(stream.isRead).toBe(true);
  reader.end();
  stream.announce(tools);
  expect([stream.isRead, reader.events]).toEqual([false, []]);
  // The end of a connection that was replaced changes nothing.
  const next = attach();
  reader.onEnd?.();
  expect(stream.isRead).toBe(true);
  stream.announce(tools);
  expect(next.events).toEqual([`0-1 ${tools}`, `0-2 ${tools}`]);
});
