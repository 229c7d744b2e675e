import { describe, expect, test } from 'vitest';
import { LIMITS } from '../kernel/limits.js';
import { MessageDecoder, newCounters } from './envelope.js';

const deep = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);

function decoded(...lines: string[]) {
  const counters = newCounters();
  const decoder = new MessageDecoder(counters);
  const delivered: string[] = [];
  for (const line of lines)
    decoder.decode(Buffer.from(line), 0, Buffer.byteLength(line), (envelope) =>
      delivered.push(`${envelope.kind} ${envelope.idText()}${envelope.isTooDeep ? ' too deep' : ''}`),
    );
  return { delivered, ...counters };
}

describe('X18 messages that nest too deep', () => {
  test.each([
    ['the id before the result', `{"jsonrpc":"2.0","id":7,"result":{"a":${deep(100_000)}}}`],
    ['the id after the result', `{"jsonrpc":"2.0","result":${deep(LIMITS.depth)},"id":7}`],
    [
      'brackets in their texts',
      `{"jsonrpc":"2.0","result":{"a":"]}","b":${deep(200).replace('[]', '["]\\"]"]')}},"id":7}`,
    ],
  ])('answers with %s are counted and delivered with their id; the next message is decoded normally', (_what, line) => {
    const { delivered, junk } = decoded(line, '{"jsonrpc":"2.0","id":8,"result":{}}');
    expect([delivered, junk]).toEqual([['result 7 too deep', 'result 8'], 1]);
  });

  test.each([
    ['a request', `{"jsonrpc":"2.0","id":7,"method":"a","params":${deep(500)}}`, 'junk'],
    ['an error without a request', `{"jsonrpc":"2.0","id":null,"error":${deep(500)}}`, 'junk'],
    ['a notification', `{"jsonrpc":"2.0","method":"a","params":${deep(500)}}`, 'junk'],
    ['an answer with two ids', `{"jsonrpc":"2.0","id":7,"result":${deep(500)},"id":8}`, 'ambiguous'],
    [
      'an answer with a second id in capital letters',
      `{"jsonrpc":"2.0","id":7,"result":${deep(500)},"ID":8}`,
      'ambiguous',
    ],
    ['an answer with result and error', `{"jsonrpc":"2.0","id":7,"result":${deep(500)},"error":{}}`, 'ambiguous'],
    ['an answer without an end', `{"jsonrpc":"2.0","id":7,"result":${'['.repeat(100_000)}`, 'junk'],
    ['an answer with more text after its end', `{"jsonrpc":"2.0","id":7,"result":${deep(500)}} x`, 'junk'],
  ] as const)('not delivered: %s', (_what, line, counted) => {
    const { delivered, junk, ambiguous } = decoded(line);
    expect([delivered, { junk, ambiguous }]).toEqual([[], { junk: 0, ambiguous: 0, [counted]: 1 }]);
  });

  test('answers in a batch do not affect the other messages of the batch', () => {
    const answer = (id: number, result: string) => `{"jsonrpc":"2.0","id":${id},"result":${result}}`;
    expect(decoded(`[${answer(1, deep(500))},${answer(2, '{}')},{"id":3,"result":${deep(200)}}]`)).toMatchObject({
      delivered: ['result 1 too deep', 'result 2'],
      junk: 2,
    });
  });

  test('answers are not parsed further: their content need not be JSON', () => {
    const { delivered } = decoded(`{"jsonrpc":"2.0","id":7,"error":${deep(200).replace('[]', '[x]')}}`);
    expect(delivered).toEqual(['error 7 too deep']);
  });
});
