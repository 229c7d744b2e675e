import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { OutboundLines } from './outbound-lines.js';

function open() {
  const taken: (() => void)[] = [];
  let text = '';
  let writes = 0;
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      writes++;
      text += chunk;
      taken.push(done);
    },
    writev(chunks: { chunk: Buffer }[], done) {
      writes++;
      text += Buffer.concat(chunks.map(({ chunk }) => chunk));
      taken.push(done);
    },
  });
  let told = 0;
  const lines = new OutboundLines({ stream, onTaken: () => told++ });
  const tick = () => new Promise((resolve) => setImmediate(resolve));
  return { lines, taken, tick, said: () => [text, writes, told] };
}

test('one message is one line, whatever breaks its payload has, as text and as bytes', async () => {
  const { lines, tick, said } = open();
  lines.write(['{"a":\n', '1,\r\n"b":2}']);
  lines.write(['{"a":', Buffer.from('\r\n1,\n"b":"é"'), '}']);
  await tick();
  expect(said()[0]).toBe('{"a": 1,  "b":2}\n{"a":  1, "b":"é"}\n');
});

test('a payload that is relayed stays as it is', async () => {
  const { lines, tick } = open();
  const payload = Buffer.from('{"a":\n1}');
  lines.write(['[', payload, ']']);
  await tick();
  expect(payload.toString()).toBe('{"a":\n1}');
});

test('what is said in one tick is one write, and what is said while that is under way is the next, in order', async () => {
  const { lines, tick, taken, said } = open();
  for (const text of ['1', '2']) lines.write([text]);
  lines.write([Buffer.from('3')]);
  await tick();
  expect(said()).toEqual(['1\n2\n3\n', 1, 0]);
  lines.write(['4']);
  lines.write([Buffer.from('5')]);
  await tick();
  expect([said()[1], lines.bytes]).toEqual([1, 10]);
  taken.shift()?.();
  await tick();
  expect(said()).toEqual(['1\n2\n3\n4\n5\n', 2, 1]);
  expect(lines.bytes).toBe(4);
});

test('`drained` waits for all of it, and for nothing after the end', async () => {
  const { lines, tick, taken } = open();
  await lines.drained();
  lines.write(['1']);
  let isDrained = false;
  const drained = lines.drained().then(() => {
    isDrained = true;
  });
  await tick();
  expect(isDrained).toBe(false);
  taken.shift()?.();
  await drained;
  lines.write(['2']);
  const given = lines.drained();
  lines.close();
  await given;
  lines.write(['3']);
  expect(lines.bytes).toBe(0);
});
