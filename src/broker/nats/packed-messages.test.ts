import { expect, test } from 'vitest';
import { packed, unpacked } from './packed-messages.js';

const KiB = 1024;
const text = (bytes: number) => JSON.stringify('x'.repeat(bytes));

test.each<[string, readonly string[], number]>([
  ['none', [], 0],
  ['one', ['{"a":1}'], 1],
  ['several', ['{"a":1}', '{"b":2}', '{}'], 1],
  ['a message with a line break between others', ['{"a":1}', '{"b":2}', '{\n"c":3}', '{"d":4}', '{"e":5}'], 3],
  ['one that is large', ['{"a":1}', text(65 * KiB), '{"b":2}'], 3],
  ['more than 64 KiB together', [text(40 * KiB), text(40 * KiB), '{"a":1}'], 2],
])('%s: messages come out as they went in', (_, messages, packs) => {
  const sent = packed(messages.map((each) => Buffer.from(each)));
  expect(sent).toHaveLength(packs);
  expect(sent.flatMap(unpacked).map(String)).toEqual(messages);
});
