import { Writable } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { LIMITS } from '../../kernel/limits.js';
import type { OutboundFrame } from '../../wire/channel.js';
import { OutboundQueue } from './outbound-queue.js';

/** A stream whose writes finish when told, so that each phase can be seen. */
class HeldStream extends Writable {
  readonly writes: string[] = [];
  #release: ((error?: Error | null) => void) | undefined;

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.writes.push(chunk.toString('utf8'));
    this.#release = done;
  }

  async release(error?: Error): Promise<void> {
    this.#release?.(error);
    await tick();
  }
}

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

const frame = (payload: string | Uint8Array, id = 1): OutboundFrame => ({
  kind: 'request',
  id,
  method: 'tools/call',
  head: '[',
  payload,
  tail: ']',
  bytes: Buffer.byteLength(payload) + 3,
  batch: 4,
  http: undefined,
  phase: 'queued',
});

/** A stream that passes everything on at once, as a pipe with room does. */
class FreeStream extends Writable {
  readonly writes: string[] = [];

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.writes.push(chunk.toString('utf8'));
    done();
  }
}

const setUp = () => setUpOn(new HeldStream());

function setUpOn<Stream extends Writable>(stream: Stream) {
  stream.on('error', () => {});
  const broken: Error[] = [];
  const queue = new OutboundQueue({ server: 'files', stream, onBroken: (error) => broken.push(error) });
  return { stream, queue, broken };
}

test('frames of one tick become one write, in order', async () => {
  const { stream, queue } = setUp();
  for (let i = 0; i < 3; i++) queue.send(frame(`${i}é`));
  await tick();
  expect(stream.writes).toEqual(['[0é]\n[1é]\n[2é]\n']);
});

test('bytes and strings mix in one write', async () => {
  const { stream, queue } = setUp();
  queue.send(frame('α'));
  queue.send(frame(Buffer.from('β')));
  queue.send({ ...frame(''), head: '[ü' });
  await tick();
  expect(stream.writes).toEqual(['[α]\n[β]\n[ü]\n']);
});

test.each([
  ['text', '{"a":\n1}\r'],
  ['bytes', Buffer.from('{"a":\n1}\r')],
])('a line break within a payload (%s) cannot start a line of its own', async (_name, payload) => {
  const { stream, queue } = setUp();
  queue.send(frame(payload));
  await tick();
  expect(stream.writes).toEqual(['[{"a": 1} ]\n']);
  if (typeof payload !== 'string') expect(payload.toString()).toContain('\r');
});

test('a frame is queued, then writing, then written', async () => {
  const { stream, queue } = setUp();
  const sent = frame('1');
  queue.send(sent);
  expect(sent.phase).toBe('queued');
  await tick();
  expect(sent.phase).toBe('writing');
  await stream.release();
  expect(sent.phase).toBe('written');
  expect(queue.bytes).toBe(0);
});

test('while a write is on its way, frames wait where they can be withdrawn', async () => {
  const { stream, queue } = setUp();
  const [first, second, third] = [frame('1'), frame('2'), frame('3')];
  queue.send(first);
  await tick();
  queue.send(second);
  queue.send(third);
  await tick();
  expect([first.phase, second.phase, third.phase]).toEqual(['writing', 'queued', 'queued']);
  expect(queue.withdraw(first)).toBe(false);
  expect(queue.withdraw(second)).toBe(true);
  expect(queue.withdraw(second)).toBe(false);
  await stream.release();
  expect(stream.writes).toEqual(['[1]\n', '[3]\n']);
});

test('K9 what waited can be withdrawn in the very moment before it is written', async () => {
  const stream = new HeldStream();
  const asked: number[] = [];
  let late: OutboundFrame | undefined;
  const queue: OutboundQueue = new OutboundQueue({
    ...{ server: 'files', stream, onBroken: () => {} },
    beforeWrite: () => {
      asked.push(stream.writes.length);
      if (late) queue.withdraw(late);
    },
  });
  const [first, second, third] = [frame('1'), frame('2'), frame('3')];
  late = first;
  queue.send(first);
  await tick();
  expect(stream.writes).toEqual([]);
  queue.send(second);
  await tick();
  late = third;
  queue.send(third);
  // While the stream takes nothing there is nothing to ask.
  await tick();
  expect(asked).toEqual([0, 0]);
  await stream.release();
  expect(asked).toEqual([0, 0, 1]);
  expect(stream.writes).toEqual(['[2]\n']);
  expect([first.phase, third.phase, queue.bytes]).toEqual(['queued', 'queued', 0]);
});

test('K9 what waited for others is looked at when they take it along; what is written as it is sent is not', () => {
  const stream = new FreeStream();
  let asked = 0;
  const beforeWrite = () => void asked++;
  const queue = new OutboundQueue({ server: 'files', stream, onBroken: () => {}, beforeWrite });
  for (let i = 0; i < 3; i++) queue.send(frame('x'));
  expect([asked, stream.writes.length]).toEqual([0, 0]);
  queue.send(frame('x'));
  expect([asked, stream.writes.length]).toEqual([1, 1]);
  queue.send({ ...frame('y'), batch: 1 });
  expect([asked, stream.writes.length]).toEqual([1, 2]);
});

test('as many frames as may leave together leave at once, without waiting for the end of the tick', () => {
  const { stream, queue } = setUpOn(new FreeStream());
  for (let i = 0; i < 10; i++) queue.send(frame('x'));
  expect(stream.writes).toEqual(Array(2).fill('[x]\n'.repeat(4)));
});

test('full batches too wait here while the stream holds bytes the system has not taken', async () => {
  const { stream, queue } = setUp();
  const frames = Array.from({ length: 64 }, (_, i) => frame(`${i}`));
  for (const each of frames) queue.send(each);
  await tick();
  expect(stream.writes).toHaveLength(1);
  expect(frames.map(({ phase }) => phase)).toEqual([...Array(4).fill('writing'), ...Array(60).fill('queued')]);
  for (const each of frames.slice(4)) expect(queue.withdraw(each)).toBe(true);
  await stream.release();
  expect(stream.writes).toHaveLength(1);
});

test('what is behind a full batch follows as soon as that was taken', async () => {
  const { stream, queue } = setUpOn(new FreeStream());
  for (let i = 0; i < 10; i++) queue.send(frame('x'.repeat(20_000)));
  await tick();
  expect(stream.writes.map((text) => text.length)).toEqual([60_009, 60_009, 60_009, 20_003]);
  expect(queue.bytes).toBe(0);
});

test('past the bound a frame is refused with what waits, and a withdrawn one makes room', () => {
  const { queue } = setUp();
  const large = frame('x'.repeat(LIMITS.outboundBytes - 103));
  expect(queue.send(large)).toBeUndefined();
  expect(queue.send(frame('y'.repeat(40)))).toBeUndefined();
  const refused = queue.send(frame('y'.repeat(60)));
  expect(refused?.toJSON()).toMatchObject({
    code: 'overloaded',
    reason: 'backpressure',
    limit: LIMITS.outboundBytes,
    actual: LIMITS.outboundBytes - 57,
    execution: 'not_executed',
  });
  expect(refused?.retryable).toBe(true);
  expect(queue.withdraw(large)).toBe(true);
  expect(queue.bytes).toBe(43);
  expect(queue.send(frame('y'.repeat(60)))).toBeUndefined();
});

test('the bound counts bytes, not characters', () => {
  const { queue } = setUp();
  expect(queue.send(frame('é'.repeat(LIMITS.outboundBytes / 2)))?.code).toBe('overloaded');
});

test('a large frame goes alone, after those before it', async () => {
  const { stream, queue } = setUp();
  queue.send(frame('1'));
  queue.send(frame('x'.repeat(300_000)));
  queue.send(frame('3'));
  for (let i = 0; i < 3; i++) {
    await tick();
    await stream.release();
  }
  expect(stream.writes.map((text) => text.length)).toEqual([4, 300_003, 4]);
});

test('a broken pipe is told once, and what was not written is handed back with its phase', async () => {
  const { stream, queue, broken } = setUp();
  const [first, second] = [frame('1'), frame('2')];
  queue.send(first);
  await tick();
  queue.send(second);
  await stream.release(new Error('EPIPE'));
  expect(broken).toHaveLength(1);
  expect(queue.abandon()).toEqual({ writing: [first], queued: [second] });
  expect([first.phase, second.phase]).toEqual(['writing', 'queued']);
  expect(queue.abandon()).toEqual({ writing: [], queued: [] });
});

test('a frame that was answered before its batch was through stays answered', async () => {
  const { stream, queue } = setUp();
  const [first, second] = [frame('1'), frame('2')];
  queue.send(first);
  queue.send(second);
  await tick();
  first.phase = 'answered';
  await stream.release();
  expect([first.phase, second.phase]).toEqual(['answered', 'written']);
});

test.each([
  ['alone', 0],
  ['among many that wait', 500],
])('what was withdrawn is not held on to, %s, however long the server reads nothing', async (_how, others) => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const { stream, queue } = setUp();
  queue.send(frame('first'));
  await tick();
  for (let i = 0; i < others; i++) queue.send(frame(`waits ${i}`));
  const withdrawn: WeakRef<Buffer>[] = [];
  for (let i = 0; i < 100; i++) {
    const payload = Buffer.alloc(1024 * 1024, 0x61);
    withdrawn.push(new WeakRef(payload));
    const given = frame(payload);
    queue.send(given);
    expect([queue.withdraw(given), queue.withdraw(given)]).toEqual([true, false]);
    if (i % 10 === 0) await tick();
  }
  await tick();
  collect();
  expect(withdrawn.filter((each) => each.deref() !== undefined).length).toBeLessThan(10);
  while (stream.writableLength > 0) await stream.release();
  const written = stream.writes.join('').split('\n');
  expect(written).toEqual(['[first]', ...Array.from({ length: others }, (_, i) => `[waits ${i}]`), '']);
  expect(queue.bytes).toBe(0);
});
