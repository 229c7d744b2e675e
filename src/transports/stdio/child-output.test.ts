import { PassThrough, type Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { readIntoSharedBuffer } from './child-output.js';

const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

test.each<[string, object]>([
  ['no handle', {}],
  ['a missing handle', { _handle: null }],
  ['a handle that cannot read into a given buffer', { _handle: { readStart: () => 0 } }],
])('a stream with %s is read by `data` events, and is itself the stream to wait for', async (_name, members) => {
  const stream = Object.assign(new PassThrough(), members);
  const read: string[] = [];
  expect(readIntoSharedBuffer(stream, (bytes) => read.push(bytes.toString()))).toBe(stream);
  stream.write('one');
  stream.end('two');
  await new Promise((resolve) => stream.once('end', resolve));
  expect(read).toEqual(['one', 'two']);
});

test('after a full buffer the rest of the event loop runs', async () => {
  const stream: Readable = new PassThrough({ highWaterMark: 1024 * 1024 });
  const sizes: number[] = [];
  readIntoSharedBuffer(stream, (bytes) => sizes.push(bytes.length));
  for (let i = 0; i < 3; i++) (stream as PassThrough).write(Buffer.alloc(64 * 1024));
  await new Promise<void>((resolve) => process.nextTick(resolve));
  const before = sizes.length;
  expect(before).toBeLessThan(3);
  for (let i = 0; i < 4; i++) await tick();
  expect(sizes).toHaveLength(3);
});
