import { describe, expect, test } from 'vitest';
import { oversizedHead, oversizedTail } from './line-reader.js';

describe('W14 the id of an oversized answer', () => {
  test.each([
    ['{"jsonrpc":"2.0","id":7,"result":{"content":', 7],
    ['{"id":7,"jsonrpc":"2.0","error":{"code":', 7],
    [' { "jsonrpc" : "2.0" , "id" : 12 , "result" : [', 12],
    ['\uFEFF{"jsonrpc":"2.0","id":7,"result":', 7],
    ['{"result":{"content":[{"type":"text","text":"', 'unnamed'],
    ['{"jsonrpc":"2.0","result":{"id":9,', 'unnamed'],
    ['{"jsonrpc":"2.0","id":"7","result":', 'none'],
    ['{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"', 'none'],
    ['{"jsonrpc":"2.0","method":"notifications/message","params":{"id":7,"result":', 'none'],
    ['[{"jsonrpc":"2.0","id":7,"result":', 'none'],
    ['xxxxxxxxxxxxxxxxx', 'none'],
    ['', 'none'],
  ])('by its first bytes: %s', (head, expected) => {
    expect(oversizedHead(Buffer.from(head))).toBe(expected);
  });

  test.each([
    ['xxx"}]},"jsonrpc":"2.0","id":7}', 7],
    ['xxx"}]},"id":7,"jsonrpc":"2.0"}\r', 7],
    ['xxx"}]} , "id" : 7 }', 7],
    // An id of something inside the result.
    ['xxx","id":7}}', undefined],
    // The text of a string.
    ['xxx,\\"id\\":7}"}', undefined],
    ['xxx","id":"7"}', undefined],
    ['xxx', undefined],
  ])('by its last bytes: %s', (tail, expected) => {
    expect(oversizedTail(Buffer.from(tail))).toBe(expected);
  });
});
