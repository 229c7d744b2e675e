import type { Dispatcher } from 'undici';
import { describe, expect, test, vi } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { notificationFrame, type OutboundFrame, requestFrame, responseFrame } from '../../wire/channel.js';
import { CallQueue, ConnectionSlots, newHttpCounters, OneWayPost, OneWayQueue } from './call-queue.js';
import type { ExchangeSink, HttpExchange } from './http-exchange.js';
import { PostCall } from './post-call.js';

const json = { 'content-type': 'application/json' };
const events = { 'content-type': 'text/event-stream' };
const lost = new HostError('transport', 'the connection was lost', { reason: 'reset' });
const messagesMax = 256;
const bytesMax = 1024 * 1024;
const bodyBytesMax = 64 * 1024;
const timeoutMs = 10_000;

const message = () => notificationFrame('notifications/cancelled', undefined);

/** A response of this many bytes. */
function messageOf(bytes: number): OutboundFrame {
  const text = (chars: number) => responseFrame('1', 'result', `"${'x'.repeat(chars)}"`);
  return text(bytes - text(0).bytes);
}

/** One POST, driven by the test. As in `HttpExchange`, an abort is followed by `released`, and by nothing else. */
class Sent {
  isAborted = false;
  #isOver = false;

  constructor(
    readonly frame: OutboundFrame,
    readonly pool: Dispatcher,
    readonly sink: ExchangeSink,
  ) {}

  abort(): void {
    if (this.#isOver) return;
    this.isAborted = true;
    this.#over();
  }

  begin(status: number, headers = json): void {
    this.sink.started();
    this.sink.head(status, headers);
  }

  end(): void {
    this.sink.end();
    this.#over();
  }

  answer(status: number): void {
    this.begin(status);
    this.end();
  }

  fail(): void {
    this.sink.failed(lost);
    this.#over();
  }

  #over(): void {
    this.#isOver = true;
    this.sink.released();
  }
}

function setup({ connections = 1, slots = new ConnectionSlots(connections) } = {}) {
  const clock = new FakeClock(5_000);
  const counters = newHttpCounters();
  const sent: Sent[] = [];
  const channel = {
    deps: { clock, random: () => 0 },
    counters,
    post(frame: OutboundFrame, pool: Dispatcher, sink: ExchangeSink): HttpExchange {
      const exchange = new Sent(frame, pool, sink);
      sent.push(exchange);
      return exchange as unknown as HttpExchange;
    },
  };
  const pool = {} as Dispatcher;
  const queue = new OneWayQueue(channel, pool, slots, timeoutMs);
  const add = (count: number) => {
    for (let i = 0; i < count; i++) queue.add(message());
  };
  /** The POST at this position, counted from 0 in the order of sending. */
  const at = (index: number) => sent[index] as Sent;
  return { clock, counters, sent, at, pool, queue, add };
}

test('the counters of a new HTTP channel are all zero', () => {
  expect(newHttpCounters()).toEqual({ junk: 0, repaired: 0, ambiguous: 0, noticesLost: 0 });
});

describe('messages and their connections', () => {
  test('messages are sent in order, each as soon as one of the connections is free', () => {
    const { queue, sent, at, pool } = setup({ connections: 2 });
    const frames = [message(), message(), message(), message()] as const;
    for (const frame of frames) queue.add(frame);
    expect(sent.map(({ frame }) => frame)).toEqual(frames.slice(0, 2));
    at(1).answer(202);
    expect(sent.map(({ frame }) => frame)).toEqual(frames.slice(0, 3));
    at(0).answer(202);
    at(2).answer(202);
    expect(sent.map(({ frame }) => frame)).toEqual(frames);
    expect(sent.every((each) => each.pool === pool)).toBe(true);
  });

  test('a waiting message gets the connection of an answered call whose stream lingers', () => {
    const slots = new ConnectionSlots(1);
    const calls = new CallQueue<PostCall>(slots, () => {});
    const { add, sent } = setup({ slots });
    const call = new PostCall({} as never, requestFrame(1, 'tools/call', undefined, undefined), {} as never);
    call.giveUp = () => calls.released(call);
    calls.add(call);
    calls.linger(call);
    add(1);
    expect(sent).toHaveLength(1);
  });
});

describe('the bounds of the queue', () => {
  test.each([1, 16, messagesMax])(
    'with %i connections, at most 256 messages wait or are in flight, and more are dropped and counted',
    (connections) => {
      const { add, counters, sent, at } = setup({ connections });
      add(messagesMax);
      expect(counters.noticesLost).toBe(0);
      add(1);
      expect([counters.noticesLost, sent.length]).toEqual([1, connections]);
      at(0).answer(202);
      add(1);
      expect(counters.noticesLost).toBe(1);
      add(1);
      expect(counters.noticesLost).toBe(2);
    },
  );

  test('no message is added while the others have one MiB or more', () => {
    const { queue, add, counters, at } = setup();
    queue.add(messageOf(bytesMax));
    add(1);
    expect(counters.noticesLost).toBe(1);
    at(0).answer(202);
    add(1);
    expect(counters.noticesLost).toBe(1);
  });

  test('a large response is accepted while the others have less than one MiB, even if it exceeds the bound', () => {
    const { queue, add, counters, sent, at } = setup();
    const large = messageOf(2 * bytesMax);
    queue.add(messageOf(bytesMax - 1));
    queue.add(large);
    add(1);
    expect(counters.noticesLost).toBe(1);
    at(0).answer(202);
    expect(at(1).frame).toBe(large);
    add(1);
    expect(counters.noticesLost).toBe(2);
    at(1).answer(202);
    add(1);
    expect([counters.noticesLost, sent.length]).toEqual([2, 3]);
  });

  test('any number of bytes may be sent one message after the other', () => {
    const { queue, counters, sent, at } = setup();
    for (let i = 0; i < 10; i++) {
      queue.add(messageOf(bytesMax / 2));
      at(i).answer(202);
    }
    expect([counters.noticesLost, sent.length]).toEqual([0, 10]);
  });
});

describe('the outcome of a message', () => {
  test.each([
    [202, 0],
    [299, 0],
    [300, 1],
    [404, 1],
  ])('a message that is answered with status %i adds %i to the lost messages', (status, count) => {
    const { add, counters, at } = setup();
    add(1);
    at(0).answer(status);
    expect(counters.noticesLost).toBe(count);
  });

  test('a message whose connection breaks before the response counts as lost, after an acceptance it does not', () => {
    const { add, counters, at } = setup({ connections: 2 });
    add(2);
    at(0).begin(202);
    at(0).fail();
    expect(counters.noticesLost).toBe(0);
    at(1).sink.started();
    at(1).fail();
    expect(counters.noticesLost).toBe(1);
  });

  test.each<[string, (sent: Sent) => void]>([
    ['accepted', (sent) => sent.answer(202)],
    ['refused', (sent) => sent.answer(500)],
    ['lost with its connection', (sent) => sent.fail()],
  ])('the sender of a message that is %s is called once, when its POST has ended', (_what, settle) => {
    const { queue, at } = setup();
    const done = vi.fn();
    const next = vi.fn();
    queue.add(message(), done);
    queue.add(message(), next);
    expect(done).not.toHaveBeenCalled();
    settle(at(0));
    expect([done.mock.calls.length, next.mock.calls.length]).toEqual([1, 0]);
    settle(at(1));
    expect([done.mock.calls.length, next.mock.calls.length]).toEqual([1, 1]);
  });

  test('the sender of a dropped message is called at once', () => {
    const { queue, add } = setup();
    add(messagesMax);
    const done = vi.fn();
    queue.add(message(), done);
    expect(done).toHaveBeenCalledTimes(1);
  });
});

describe('the deadline of a message', () => {
  test('a message that is not answered in time is lost, and its connection is used for the next one', () => {
    const { clock, add, counters, sent, at } = setup();
    add(2);
    clock.advance(timeoutMs - 1);
    expect([at(0).isAborted, counters.noticesLost, sent.length]).toEqual([false, 0, 1]);
    clock.advance(1);
    expect([at(0).isAborted, counters.noticesLost, sent.length]).toEqual([true, 1, 2]);
  });

  test('the time of a message that waited starts when it gets a connection', () => {
    const { clock, add, counters, at } = setup();
    add(2);
    clock.advance(timeoutMs - 1);
    at(0).answer(202);
    clock.advance(timeoutMs - 1);
    expect([at(1).isAborted, counters.noticesLost]).toEqual([false, 0]);
    clock.advance(1);
    expect([at(1).isAborted, counters.noticesLost]).toEqual([true, 1]);
  });

  test.each<[string, (sent: Sent) => void, number]>([
    ['whose request is not answered', (sent) => sent.sink.started(), 1],
    ['that is accepted by a response without an end', (sent) => sent.begin(202), 0],
    ['that is refused by a response without an end', (sent) => sent.begin(500), 1],
  ])('a message %s is given up in time, and counts as lost unless it was accepted', (_what, before, count) => {
    const { clock, add, counters, at } = setup();
    add(1);
    before(at(0));
    clock.advance(timeoutMs);
    expect([at(0).isAborted, counters.noticesLost]).toEqual([true, count]);
  });

  test('no timer runs after a message was answered', () => {
    const { clock, add, at } = setup();
    add(1);
    expect(clock.pendingTimers).toBe(1);
    at(0).answer(202);
    expect(clock.pendingTimers).toBe(0);
  });
});

test('a closed queue aborts what is in flight, sends nothing more, calls no sender and leaves no timer', () => {
  const { clock, queue, add, counters, sent } = setup({ connections: 2 });
  const done = vi.fn();
  for (let i = 0; i < 3; i++) queue.add(message(), done);
  add(1);
  queue.close();
  expect(sent.map(({ isAborted }) => isAborted)).toEqual([true, true]);
  expect([clock.pendingTimers, counters.noticesLost, done.mock.calls.length]).toEqual([0, 0, 0]);
});

/** A POST and what its owner hears, in order. */
function newPost() {
  const heard: string[] = [];
  const post: OneWayPost = new OneWayPost(
    {
      active: () => heard.push(`active while ${post.frame.phase}`),
      refused: (_post, status, headers) => heard.push(`refused ${status} ${headers['content-type']}`),
      failed: (_post, error) => heard.push(`failed ${error.details.reason}`),
      released: () => heard.push('released'),
    },
    message(),
    false,
  );
  const exchange = new Sent(post.frame, {} as Dispatcher, post);
  post.exchange = exchange as unknown as HttpExchange;
  /** What the owner heard since the last call, without the signs of activity. */
  const look = () => heard.splice(0).filter((what) => !what.startsWith('active'));
  return { post, exchange, heard, look };
}

describe('one POST that is answered by a status', () => {
  test('its message is being written after the start and written when the response begins, and the owner hears both', () => {
    const { post, heard } = newPost();
    expect([post.frame.phase, post.isAccepted]).toEqual(['queued', false]);
    post.started();
    expect([post.frame.phase, post.isAccepted]).toEqual(['writing', false]);
    post.head(202, json);
    expect([post.frame.phase, post.isAccepted]).toEqual(['written', true]);
    expect(heard).toEqual(['active while writing', 'active while written']);
  });

  test('an acceptance is no report, and a refusal is reported at the end of its body', () => {
    const accepted = newPost();
    accepted.exchange.answer(202);
    expect(accepted.look()).toEqual(['released']);
    const refused = newPost();
    refused.exchange.begin(404);
    expect([refused.look(), refused.post.isAccepted]).toEqual([[], false]);
    refused.exchange.end();
    expect(refused.look()).toEqual(['refused 404 application/json', 'released']);
  });

  test.each([
    ['an accepted message is closed if it is an event stream', 202, events, true],
    ['an accepted message is read to its end otherwise', 202, json, false],
    ['a refused message is read to its end even if it is an event stream', 404, events, false],
  ])('the response to %s', (_what, status, headers, isClosed) => {
    const { exchange } = newPost();
    exchange.begin(status, headers);
    expect(exchange.isAborted).toBe(isClosed);
  });

  test.each([
    ['an acceptance', 202, ['released']],
    ['a refusal', 500, ['refused 500 application/json', 'released']],
  ])('the body of %s is read up to 64 KiB, then the connection is closed', (_what, status, reports) => {
    const { post, exchange, look } = newPost();
    exchange.begin(status);
    post.data(Buffer.alloc(bodyBytesMax - 1));
    post.data(Buffer.alloc(1));
    expect([exchange.isAborted, look()]).toEqual([false, []]);
    post.data(Buffer.alloc(1));
    expect([exchange.isAborted, look()]).toEqual([true, reports]);
  });

  test.each<[string, (sent: Sent) => void, string[]]>([
    ['before the first byte is a failure', () => {}, ['failed reset', 'released']],
    ['before the response is a failure', (sent) => sent.sink.started(), ['failed reset', 'released']],
    ['after an acceptance is no failure', (sent) => sent.begin(202), ['released']],
    ['after a refusal is a refusal', (sent) => sent.begin(500), ['refused 500 application/json', 'released']],
  ])('a connection that breaks %s', (_what, before, reports) => {
    const { exchange, look } = newPost();
    before(exchange);
    exchange.fail();
    expect(look()).toEqual(reports);
  });

  test('a POST that is given up aborts its exchange, and does nothing if it was not sent', () => {
    const { post, exchange, look } = newPost();
    post.giveUp();
    expect([exchange.isAborted, look()]).toEqual([true, ['released']]);
    const waiting = newPost();
    waiting.post.exchange = undefined;
    waiting.post.giveUp();
    expect([waiting.exchange.isAborted, waiting.look()]).toEqual([false, []]);
  });
});
