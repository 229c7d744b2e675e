import { expect, test } from 'vitest';
import { RequestHead } from './request-head.js';

test('names are read in any case, values as they are', () => {
  const head = new RequestHead(['HOST', 'A', 'Mcp-Method', 'Tools/Call', 'x-other', '1', 'Mcp-Param-Region', 'eu']);
  expect([head.host, head.mcpMethod, head.mcpName, head.other('mcp-param-region')]).toEqual([
    ...['A', 'Tools/Call', undefined, 'eu'],
  ]);
});

test('a header that stands twice is neither of the two', () => {
  const head = new RequestHead([
    'Host',
    'a',
    'host',
    'b',
    'Mcp-Param-A',
    '1',
    'mcp-param-a',
    '1',
    'Authorization',
    '',
    'authorization',
    'x',
  ]);
  expect([head.host, head.other('mcp-param-a'), head.authorization]).toEqual(['a, b', '1, 1', ', x']);
});
