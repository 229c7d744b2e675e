import { Writable } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import type { OutboundFrame } from './channel.js';
import { LineWriter, lineOf } from './line-writer.js';

/** A stream whose writes finish on `release`, so that each phase is visible. */
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

/** A stream that accepts everything at once, like a pipe with space. */
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
  const broken: number[] = [];
  const taken: number[] = [];
  const writer: LineWriter<OutboundFrame> = new LineWriter(stream, {
    defer: setImmediate,
    onTaken: () => taken.push(writer.bytes),
    onBroken: () => broken.push(writer.bytes),
  });
  return { stream, writer, broken, taken };
}

test('frames of one tick become one write, in order', async () => {
  const { stream, writer } = setUp();
  for (let i = 0; i < 3; i++) writer.write(frame(`${i}é`));
  await tick();
  expect(stream.writes).toEqual(['[0é]\n[1é]\n[2é]\n']);
});

test('bytes and strings are combined in one write', async () => {
  const { stream, writer } = setUp();
  writer.write(frame('α'));
  writer.write(frame(Buffer.from('β')));
  writer.write({ ...frame(''), head: '[ü', bytes: 5 });
  await tick();
  expect(stream.writes).toEqual(['[α]\n[β]\n[ü]\n']);
});

test.each([
  ['text', '{"a":\n1}\r'],
  ['bytes', Buffer.from('{"a":\n1}\r')],
])('a line break within a payload (%s) cannot start a line of its own', async (_name, payload) => {
  const { stream, writer } = setUp();
  writer.write(frame(payload));
  await tick();
  expect(stream.writes).toEqual(['[{"a": 1} ]\n']);
  if (typeof payload !== 'string') expect(payload.toString()).toContain('\r');
});

test('a frame is queued, then writing, then written', async () => {
  const { stream, writer } = setUp();
  const sent = frame('1');
  writer.write(sent);
  expect(sent.phase).toBe('queued');
  await tick();
  expect(sent.phase).toBe('writing');
  await stream.release();
  expect(sent.phase).toBe('written');
  expect(writer.bytes).toBe(0);
});

test('during a write, frames stay queued and can be withdrawn', async () => {
  const { stream, writer } = setUp();
  const [first, second, third] = [frame('1'), frame('2'), frame('3')];
  writer.write(first);
  await tick();
  writer.write(second);
  writer.write(third);
  await tick();
  expect([first.phase, second.phase, third.phase]).toEqual(['writing', 'queued', 'queued']);
  expect(writer.withdraw(first)).toBe(false);
  expect(writer.withdraw(second)).toBe(true);
  expect(writer.withdraw(second)).toBe(false);
  await stream.release();
  expect(stream.writes).toEqual(['[1]\n', '[3]\n']);
});

test('K9 a queued frame can be withdrawn in `beforeWrite`', async () => {
  const stream = new HeldStream();
  const asked: number[] = [];
  let late: OutboundFrame | undefined;
  const writer: LineWriter<OutboundFrame> = new LineWriter(stream, {
    defer: setImmediate,
    beforeWrite: () => {
      asked.push(stream.writes.length);
      if (late) writer.withdraw(late);
    },
  });
  const [first, second, third] = [frame('1'), frame('2'), frame('3')];
  late = first;
  writer.write(first);
  await tick();
  expect(stream.writes).toEqual([]);
  writer.write(second);
  await tick();
  late = third;
  writer.write(third);
  // While the stream accepts nothing, `beforeWrite` is not called.
  await tick();
  expect(asked).toEqual([0, 0]);
  await stream.release();
  expect(asked).toEqual([0, 0, 1]);
  expect(stream.writes).toEqual(['[2]\n']);
  expect([first.phase, third.phase, writer.bytes]).toEqual(['queued', 'queued', 0]);
});

test('K9 `beforeWrite` is called for queued frames, not for a frame that is written at once', () => {
  const stream = new FreeStream();
  let asked = 0;
  const beforeWrite = () => void asked++;
  const writer = new LineWriter(stream, { defer: setImmediate, beforeWrite });
  for (let i = 0; i < 3; i++) writer.write(frame('x'));
  expect([asked, stream.writes.length]).toEqual([0, 0]);
  writer.write(frame('x'));
  expect([asked, stream.writes.length]).toEqual([1, 1]);
  writer.write({ ...frame('y'), batch: 1 });
  expect([asked, stream.writes.length]).toEqual([1, 2]);
});

test('a full batch of frames is written at once, without waiting for the end of the tick', () => {
  const { stream, writer } = setUpOn(new FreeStream());
  for (let i = 0; i < 10; i++) writer.write(frame('x'));
  expect(stream.writes).toEqual(Array(2).fill('[x]\n'.repeat(4)));
});

test('full batches also wait while the stream holds bytes that the system has not accepted', async () => {
  const { stream, writer } = setUp();
  const frames = Array.from({ length: 64 }, (_, i) => frame(`${i}`));
  for (const each of frames) writer.write(each);
  await tick();
  expect(stream.writes).toHaveLength(1);
  expect(frames.map(({ phase }) => phase)).toEqual([...Array(4).fill('writing'), ...Array(60).fill('queued')]);
  for (const each of frames.slice(4)) expect(writer.withdraw(each)).toBe(true);
  await stream.release();
  expect(stream.writes).toHaveLength(1);
});

test('frames after a full batch follow as soon as it was accepted', async () => {
  const { stream, writer } = setUpOn(new FreeStream());
  for (let i = 0; i < 10; i++) writer.write(frame('x'.repeat(20_000)));
  await tick();
  expect(stream.writes.map((text) => text.length)).toEqual([60_009, 60_009, 60_009, 20_003]);
  expect(writer.bytes).toBe(0);
});

test('`bytes` counts queued lines and those being written; a withdrawn line makes room', async () => {
  const { stream, writer } = setUp();
  const [large, small] = [frame('x'.repeat(100)), frame('é'.repeat(20))];
  writer.write(large);
  writer.write(small);
  expect(writer.bytes).toBe(146);
  expect(writer.withdraw(large)).toBe(true);
  expect(writer.bytes).toBe(43);
  await tick();
  expect(writer.bytes).toBe(43);
  await stream.release();
  expect(writer.bytes).toBe(0);
});

test('a large frame is written alone, after the earlier frames', async () => {
  const { stream, writer } = setUp();
  writer.write(frame('1'));
  writer.write(frame('x'.repeat(300_000)));
  writer.write(frame('3'));
  for (let i = 0; i < 3; i++) {
    await tick();
    await stream.release();
  }
  expect(stream.writes.map((text) => text.length)).toEqual([4, 300_003, 4]);
});

test('a broken pipe is reported once, and unwritten frames are returned with their phase', async () => {
  const { stream, writer, broken } = setUp();
  const [first, second] = [frame('1'), frame('2')];
  writer.write(first);
  await tick();
  writer.write(second);
  await stream.release(new Error('EPIPE'));
  expect(broken).toHaveLength(1);
  expect(writer.abandon()).toEqual({ writing: [first], queued: [second] });
  expect([first.phase, second.phase]).toEqual(['writing', 'queued']);
  expect(writer.abandon()).toEqual({ writing: [], queued: [] });
});

test('a frame that was answered before the end of its batch stays answered', async () => {
  const { stream, writer } = setUp();
  const [first, second] = [frame('1'), frame('2')];
  writer.write(first);
  writer.write(second);
  await tick();
  first.phase = 'answered';
  await stream.release();
  expect([first.phase, second.phase]).toEqual(['answered', 'written']);
});

test.each([
  ['alone', 0],
  ['among many waiting frames', 500],
])('withdrawn frames are released, %s, even when the server reads nothing', async (_how, others) => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const { stream, writer } = setUp();
  writer.write(frame('first'));
  await tick();
  for (let i = 0; i < others; i++) writer.write(frame(`waits ${i}`));
  const withdrawn: WeakRef<Buffer>[] = [];
  for (let i = 0; i < 100; i++) {
    const payload = Buffer.alloc(1024 * 1024, 0x61);
    withdrawn.push(new WeakRef(payload));
    const given = frame(payload);
    writer.write(given);
    expect([writer.withdraw(given), writer.withdraw(given)]).toEqual([true, false]);
    if (i % 10 === 0) await tick();
  }
  await tick();
  collect();
  expect(withdrawn.filter((each) => each.deref() !== undefined).length).toBeLessThan(10);
  while (stream.writableLength > 0) await stream.release();
  const written = stream.writes.join('').split('\n');
  expect(written).toEqual(['[first]', ...Array.from({ length: others }, (_, i) => `[waits ${i}]`), '']);
  expect(writer.bytes).toBe(0);
});

const deferred = () => {
  const stream = new HeldStream();
  return { stream, writer: new LineWriter(stream, { defer: process.nextTick }) };
};

test('a message of several parts is one line, whatever line breaks its parts have, as text and as bytes', async () => {
  const { stream, writer } = deferred();
  writer.write(lineOf(['{"a":\n', '1,\r\n"b":2}']));
  writer.write(lineOf(['{"a":\n', Buffer.from('\r\n1,\n"b":"é"'), '}']));
  writer.write(lineOf(['{', '"é":', Buffer.from('[1'), ',\n', Buffer.from('2]'), '\r', '}']));
  await tick();
  expect(stream.writes).toEqual(['{"a": 1,  "b":2}\n{"a":   1, "b":"é"}\n{"é":[1, 2] }\n']);
  expect(writer.bytes).toBe(Buffer.byteLength(stream.writes.join('')));
});

test('a relayed payload is unchanged', async () => {
  const { writer } = deferred();
  const payload = Buffer.from('{"a":\n1}');
  writer.write(lineOf(['[', payload, ']']));
  await tick();
  expect(payload.toString()).toBe('{"a":\n1}');
});

test('lines of one tick are one write, and lines that come during that write are the next, in order', async () => {
  const { stream, writer, taken } = setUp();
  for (const part of ['1', '2', Buffer.from('3')]) writer.write(lineOf([part]) as OutboundFrame);
  await tick();
  expect([stream.writes, taken]).toEqual([['1\n2\n3\n'], []]);
  for (const part of ['4', Buffer.from('5')]) writer.write(lineOf([part]) as OutboundFrame);
  await tick();
  expect([stream.writes.length, writer.bytes]).toEqual([1, 10]);
  await stream.release();
  expect([stream.writes, taken]).toEqual([['1\n2\n3\n', '4\n5\n'], [4]]);
});

test('`drained` waits for all lines, but not after the end of the stream', async () => {
  const { stream, writer } = deferred();
  await writer.drained();
  writer.write(lineOf(['1']));
  let isDrained = false;
  const drained = writer.drained().then(() => {
    isDrained = true;
  });
  await tick();
  expect(isDrained).toBe(false);
  await stream.release();
  await drained;
  writer.write(lineOf(['2']));
  const given = writer.drained();
  writer.abandon();
  await given;
  writer.write(lineOf(['3']));
  expect(writer.bytes).toBe(0);
});
