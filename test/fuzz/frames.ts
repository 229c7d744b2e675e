/**
 * Frames of four protocol revisions, and a seeded mutator that damages them as connections and servers do.
 */
import { type Random, randomInt } from '../../src/kernel/random.js';

const request = (id: unknown, method: string, params?: unknown) =>
  JSON.stringify({ jsonrpc: '2.0', id, method, params });
const result = (id: unknown, value: unknown) => JSON.stringify({ result: value, jsonrpc: '2.0', id });

const corpus: readonly string[] = [
  request(0, 'initialize', {
    protocolVersion: '2024-11-05',
    capabilities: { roots: { listChanged: true } },
    clientInfo: { name: 'c', version: '1' },
  }),
  request(1, 'initialize', {
    protocolVersion: '2025-11-25',
    capabilities: { elicitation: {} },
    clientInfo: { name: 'c' },
  }),
  request('a-1', 'server/discover', {
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
    },
  }),
  result(2, { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 's', version: '2' } }),
  result(3, {
    resultType: 'complete',
    supportedVersions: ['2026-07-28'],
    capabilities: {},
    ttlMs: 5000,
    cacheScope: 'private',
  }),
  result(4, {
    tools: [
      {
        name: 'echo',
        description: 'says “it” back – naïve 日本語 😀',
        inputSchema: { type: 'object', properties: { a: { type: 'string' } } },
      },
      {
        name: 'add',
        inputSchema: { type: 'object' },
        annotations: { readOnlyHint: true },
        'x-vendor': [1, 2, { deep: [[[]]] }],
      },
    ],
    nextCursor: 'bmV4dA==',
  }),
  result(5, { content: [{ type: 'text', text: 'line\nbreak "quoted" \\ \u2028 \u0007' }], isError: false }),
  result('x', { content: [], structuredContent: [1, 2.5, -3e10, null, true] }),
  '{"jsonrpc":"2.0","id":6,"result":{"big":18446744073709551615,"exp":1e400,"one":1.0}}',
  '{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"bad","data":{"field":"x"}}}',
  '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}',
  '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.5,"total":1}}',
  '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12,"reason":"user"}}',
  '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
  request(8, 'tools/call', { name: 'echo', arguments: { text: 'x'.repeat(300) }, _meta: { progressToken: 8 } }),
  request(9, 'elicitation/create', { message: 'which?', requestedSchema: { type: 'object', properties: {} } }),
  `[${request(10, 'ping')},${result(11, {})}]`,
  ' { "jsonrpc" : "2.0" , "id" : 12 , "result" : { } } ',
  'Server listening on stdio',
  '',
];

const tokens = [
  '"',
  '\\',
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  '\r',
  '\0',
  '\u00ff',
  '\ufeff',
  '"id":1,',
  '"Method":"x",',
  '\\u0000',
  '1e999',
  '__proto__',
];

/** Bytes of one frame without its newline, with zero to three mutations. */
export function spoiledFrame(random: Random): Buffer {
  let bytes: Buffer = Buffer.from(corpus[randomInt(random, 0, corpus.length - 1)] as string);
  const edits = random() < 0.3 ? 0 : randomInt(random, 1, 3);
  for (let i = 0; i < edits; i++) bytes = spoil(bytes, random);
  // Newlines are replaced, because the caller counts frames.
  for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at)) bytes[at] = 0x20;
  return bytes;
}

function spoil(bytes: Buffer, random: Random): Buffer {
  const at = randomInt(random, 0, bytes.length);
  const to = Math.min(bytes.length, at + randomInt(random, 1, 12));
  switch (randomInt(random, 0, 6)) {
    case 0: {
      const copy = Buffer.from(bytes);
      if (at < copy.length) copy[at] = randomInt(random, 0, 255);
      return copy;
    }
    case 1:
      return Buffer.concat([bytes.subarray(0, at), bytes.subarray(to)]);
    case 2:
      return Buffer.concat([bytes.subarray(0, to), bytes.subarray(at)]);
    case 3:
      return Buffer.from(bytes.subarray(0, at));
    case 4:
      return Buffer.concat([
        bytes.subarray(0, at),
        Buffer.from(tokens[randomInt(random, 0, tokens.length - 1)] as string),
        bytes.subarray(at),
      ]);
    case 5: {
      const copy = Buffer.from(bytes);
      if (at < copy.length) copy[at] = (copy[at] as number) ^ (1 << randomInt(random, 0, 7));
      return copy;
    }
    default:
      return Buffer.concat([bytes.subarray(at), bytes.subarray(0, at)]);
  }
}
