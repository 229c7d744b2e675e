import { expect, test } from 'vitest';
import { LIMITS } from '../../kernel/limits.js';
import { randomInt, seededRandom } from '../../kernel/random.js';
import { InboundLines } from './inbound-lines.js';

function open() {
  const reported: unknown[] = [];
  const lines = new InboundLines({
    message: (envelope) => reported.push([envelope.kind, envelope.idText(), envelope.payload()?.toString()]),
    fault: ({ idText, failure }) => reported.push([failure.code, idText]),
    batch: (_bytes, bounds) => reported.push(['batch', bounds.length / 2]),
  });
  return { lines, reported };
}

const text = [
  '{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"é"}}',
  '',
  'junk',
  '[{"jsonrpc":"2.0","id":2,"method":"b"},5]',
  '{"jsonrpc":"2.0","id":3}',
  '{"jsonrpc":"2.0","id":"4","result":{}}',
  '[1',
  '{"jsonrpc":"2.0","method":"c"}',
].join('\n');
const expected = [
  ['request', '1', '{"x":"é"}'],
  [-32700, undefined],
  ['batch', 2],
  [-32600, undefined],
  ['result', '"4"', '{}'],
  [-32700, undefined],
  ['notification', undefined, undefined],
];

test('lines do not depend on how the bytes are cut, and the last line needs no line end', () => {
  const bytes = Buffer.from(text);
  const random = seededRandom(7);
  for (let round = 0; round < 200; round++) {
    const { lines, reported } = open();
    for (let from = 0; from < bytes.length; ) {
      const to = Math.min(bytes.length, from + randomInt(random, 1, round === 0 ? 1 : 60));
      lines.push(bytes.subarray(from, to));
      from = to;
    }
    lines.end();
    expect(reported).toEqual(expected);
  }
});

test('each line that is too long is one fault, however its bytes are cut, and the other lines are read', () => {
  const long = Buffer.alloc(LIMITS.frameBytes + 1, 'x');
  const good = Buffer.from('{"jsonrpc":"2.0","id":1,"method":"a"}\n');
  const { lines, reported } = open();
  lines.push(Buffer.concat([good, long, Buffer.from('\n'), good]));
  lines.push(long.subarray(0, 5));
  lines.push(long);
  lines.push(Buffer.concat([Buffer.from('xx\n'), good]));
  const request = ['request', '1', undefined];
  expect(reported).toEqual([request, [-32600, undefined], request, [-32600, undefined], request]);
});
