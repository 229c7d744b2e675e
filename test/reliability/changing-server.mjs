/** A legacy stdio server. Its argument is the number of its tools. A call of `change` changes one tool. */
import process from 'node:process';
import { createInterface } from 'node:readline';

const count = Number(process.argv[2]);
let version = 0;
const inputSchema = { type: 'object', properties: { text: { type: 'string', description: 'What to answer with.' } } };
const tools = () => [
  { name: 'change', description: `Version ${version}.`, inputSchema },
  ...Array.from({ length: count - 1 }, (_, i) => ({
    name: `tool${i}`,
    description: 'Answers with its input.',
    inputSchema,
  })),
];
const write = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);

const results = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: { listChanged: true } },
    serverInfo: { name: 'changing', version: '1.0.0' },
  }),
  ping: () => ({}),
  'tools/list': () => ({ tools: tools() }),
  'tools/call': () => {
    version++;
    write({ method: 'notifications/tools/list_changed' });
    return { content: [] };
  },
};

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = results[method]?.(params);
  write(result ? { id, result } : { id, error: { code: -32601, message: 'Method not found' } });
});
