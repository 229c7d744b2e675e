/** Texts that cost their reader much more than their author: tool definitions and requests. */

const MiB = 1024 * 1024;
/** Below the limit of a body, with room for the rest of the message. */
const bodyBytes = 4 * MiB - 4_096;

const filled = (piece: string, bytes = bodyBytes): string => piece.repeat(Math.floor(bytes / piece.length));
const listed = (piece: string, bytes = bodyBytes): string => filled(`${piece},`, bytes).slice(0, -1);

function membersOf(write: (i: number) => string, bytes = bodyBytes): string {
  const parts: string[] = [];
  for (let i = 0, length = 0; length < bytes - 64; i++) {
    const part = write(i);
    parts.push(part);
    length += Buffer.byteLength(part) + 1;
  }
  return parts.join();
}

const plain = (i: number) => `"k${i}":0`;
const escaped = (i: number) => `"\\u006e\\u0061\\u006d${i}":0`;
const foreign = (i: number) => `"é${i}":0`;

const nested = (depth: number, inner = '{}') => `${'{"properties":{"a":'.repeat(depth)}${inner}${'}}'.repeat(depth)}`;
const tool = (name: string, schema: string) => `{"name":"${name}","inputSchema":${schema}}`;
const tools = (...each: string[]) =>
  `{"tools":[${each.join()}],"ttlMs":0,"cacheScope":"private","resultType":"complete"}`;
const many = (count: number, schema: (i: number) => string) =>
  tools(...Array.from({ length: count }, (_, i) => tool(`t${i}`, schema(i))));
const headed = (i: number) => `"p${i}":{"type":"string","x-mcp-header":"H${i}"}`;
/** One server may have sixteen tools of nearly 256 KiB. */
const toolBytes = 250 * 1024;

/** Lists of servers. `isTaken`: the list is within all limits, so it is shown. */
export const schemaBombs = (canary: string): ReadonlyArray<[what: string, isTaken: boolean, text: string]> => [
  [
    'references to the network',
    true,
    tools(
      tool('t0', `{"$schema":"${canary}/schema","$id":"${canary}/id","type":"object","$ref":"${canary}/ref"}`),
      tool('t1', `{"type":"object","properties":{"a":{"$ref":"${canary}/a#/b","$dynamicRef":"${canary}/d"}}}`),
    ),
  ],
  ['a schema that is itself', true, tools(tool('t0', '{"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}'))],
  ['100,000 levels', false, tools(tool('t0', nested(50_000)))],
  ['60 levels in each of 1,000 tools', true, many(1_000, () => nested(60))],
  ['a million schemas in one tool', false, tools(tool('t0', `{"type":"object","anyOf":[${listed('{}', 3 * MiB)}]}`))],
  [
    'a million schemas in sixteen tools',
    true,
    many(16, () => `{"type":"object","anyOf":[${listed('{}', toolBytes)}]}`),
  ],
  ['an array of two million', false, `{"tools":[${listed('0')}]}`],
  [
    'patterns without end',
    true,
    tools(
      tool(
        't0',
        '{"type":"object","properties":{"text":{"type":"string","pattern":"^(a+)+$"}},"patternProperties":{"^(([a-z])+.)+$":{}}}',
      ),
    ),
  ],
  ['thousands of headers', true, many(16, () => `{"type":"object","properties":{${membersOf(headed, toolBytes)}}}`)],
  [
    'one header, far down among others',
    true,
    many(
      16,
      () =>
        `{"type":"object","anyOf":[${listed('{"not":{}}', toolBytes)}],"properties":{"text":{"type":"string","x-mcp-header":"Text"}}}`,
    ),
  ],
  [
    'long names of headers',
    true,
    many(16, () => `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"${'h'.repeat(toolBytes)}"}}}`),
  ],
  [
    'many headers below one long name',
    true,
    many(
      16,
      () =>
        `{"type":"object","properties":{"${'n'.repeat(toolBytes - 4_096)}":{"properties":{${Array.from({ length: 32 }, (_, i) => headed(i)).join()}}}}}`,
    ),
  ],
  // This one is last: pins of removed tools are kept, so any later list would also have the cost of these 10,000.
  ['10,000 tools', true, many(10_000, () => '{"type":"object","properties":{"a":{"type":"string"}}}')],
];

const version = '"io.modelcontextprotocol/protocolVersion":"2026-07-28"';
const capabilities = '"io.modelcontextprotocol/clientCapabilities":';
const meta = `"_meta":{${version},${capabilities}{"elicitation":{}}}`;
const call = (members: string, name = 'good__echo'): [string, string, string] => [
  'tools/call',
  name,
  `{"name":"${name}",${members}}`,
];
const withArgs = (args: string) => call(`"arguments":${args},${meta}`);
const inMeta = (members: string) => call(`"arguments":{"text":"x"},"_meta":{${version},${capabilities}{},${members}}`);

/** Requests of clients: method, the header `Mcp-Name`, and params as text. */
export const requestBombs: Readonly<Record<string, () => [method: string, name: string, params: string]>> = {
  'arguments: one long text': () => withArgs(`{"text":"${filled('x', MiB)}"}`),
  'arguments: an array of two million': () => withArgs(`{"l":[${listed('0')}]}`),
  'arguments: 99,000 values': () => withArgs(`{"text":"x","l":[${listed('0', 2 * 99_000)}]}`),
  'arguments: a million objects': () => withArgs(`{"l":[${listed('{}')}]}`),
  'arguments: many members': () => withArgs(`{${membersOf(plain)}}`),
  'arguments: 90,000 members': () => withArgs(`{"text":"x",${membersOf(escaped, 90_000 * 26)}}`),
  'arguments: 100,000 levels': () => withArgs(`{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`),
  'arguments: 120 levels side by side': () => withArgs(`{"a":[${listed('['.repeat(120) + ']'.repeat(120))}]}`),
  'arguments: what a pattern chokes on': () => withArgs(`{"text":"${'a'.repeat(50_000)}!"}`),
  'params: many members': () => call(`"arguments":{},${meta},${membersOf(plain)}`),
  'params: 90,000 escaped members': () => call(`"arguments":{},${meta},${membersOf(escaped, 90_000 * 26)}`),
  'a prompt: 90,000 escaped members': () => [
    'prompts/get',
    'good__greet',
    `{"name":"good__greet",${meta},${membersOf(escaped, 90_000 * 26)}}`,
  ],
  '_meta: many members': () => inMeta(membersOf(plain)),
  '_meta: 90,000 members': () => inMeta(membersOf(plain, 90_000 * 9)),
  '_meta: 90,000 foreign members': () => inMeta(membersOf(foreign, 90_000 * 10)),
  'capabilities: 90,000 escaped members': () =>
    call(`"arguments":{"text":"x"},"_meta":{${version},${capabilities}{${membersOf(escaped, 90_000 * 26)}}}`),
  'clientInfo: 90,000 members': () => inMeta(`"io.modelcontextprotocol/clientInfo":{${membersOf(plain, 90_000 * 9)}}`),
  'inputResponses: 90,000 members': () =>
    call(`"arguments":{},"inputResponses":{${membersOf(plain, 90_000 * 9)}},${meta}`, 'good__ask'),
  'requestState: a mebibyte': () => call(`"arguments":{},"requestState":"${filled('A', MiB)}",${meta}`, 'good__ask'),
  'requestState: escaped': () => call(`"arguments":{},"requestState":"${filled('\\u0041', MiB)}",${meta}`, 'good__ask'),
  'a long name': () => ['tools/call', 'n', `{"name":"${filled('n', MiB)}",${meta}}`],
  'a long URI': () => [
    'resources/read',
    `rec://item/${'a/'.repeat(4_000)}`,
    `{"uri":"rec://item/${'a/'.repeat(4_000)}",${meta}}`,
  ],
  'a long cursor': () => ['tools/list', '', `{"cursor":"${filled('a', MiB)}",${meta}}`],
  'a long progress token': () => inMeta(`"progressToken":"${filled('x', MiB)}"`),
  'a ref of 90,000 members': () => [
    'completion/complete',
    '',
    `{"ref":{"type":"ref/prompt","name":"good__greet",${membersOf(plain, 90_000 * 9)}},"argument":{"name":"a","value":""},${meta}}`,
  ],
};
