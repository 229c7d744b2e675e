/** A legacy MCP server whose results have as many bytes as the call asks for. $TOOLS tools, each with a description of $BYTES. */
import { createInterface } from 'node:readline';

const { TOOLS = 1, BYTES = 0 } = process.env;
const description = 'x'.repeat(Number(BYTES));
const inputSchema = { type: 'object' };
const results = {
  initialize: {
    protocolVersion: '2025-11-25',
    capabilities: { tools: {} },
    serverInfo: { name: 'large', version: '1' },
  },
  'tools/list': {
    tools: Array.from({ length: Number(TOOLS) }, (_, at) => ({ name: `work${at || ''}`, description, inputSchema })),
  },
};
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const bytes = params?.arguments?.bytes ?? 0;
  const result =
    results[method] ?? (method === 'tools/call' ? { content: [{ type: 'text', text: 'x'.repeat(bytes) }] } : {});
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);
}
