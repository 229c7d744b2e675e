/** How many values a message of a stranger may hold, and how many members an object that is looked in. */
import { expect, test } from 'vitest';
import { Envelope, scanBounded, scanEnvelope } from './envelope.js';
import { membersBytes, memberText } from './json-members.js';

const message = (count: number) =>
  Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"l":[${'0,'.repeat(count).slice(0, -1)}]}}`);

test('X18 a message with more values than its bound is read no further, and no other is touched by that', () => {
  const envelope = new Envelope();
  const bounded = (bytes: Buffer) => scanBounded(bytes, 0, bytes.length, envelope, 100);
  expect([bounded(message(90)), bounded(message(101)), bounded(message(1_000_000))]).toEqual([
    undefined,
    'too_many',
    'too_many',
  ]);
  const large = message(1_000);
  expect(scanEnvelope(large, 0, large.length, envelope)).toBeUndefined();
});

test('X18 values are counted over all members together', () => {
  const envelope = new Envelope();
  const parts = Array.from({ length: 10 }, (_, i) => `"x${i}":[${'0,'.repeat(50).slice(0, -1)}]`);
  const bytes = Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"m",${parts.join()}}`);
  expect(scanBounded(bytes, 0, bytes.length, envelope, 100)).toBe('too_many');
});

test('X18 nothing is found among more than 1,000 members', () => {
  const object = (count: number) =>
    Buffer.from(`{"a":1,${Array.from({ length: count - 1 }, (_, i) => `"k${i}":0`).join()}}`);
  expect([memberText(object(1_000), 'a'), memberText(object(1_001), 'a')]).toEqual(['1', undefined]);
  expect(membersBytes(object(1_000), ['a'])[0]?.toString()).toBe('1');
  expect(membersBytes(object(1_001), ['a'])).toEqual([undefined]);
});
