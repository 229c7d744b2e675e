/** A legacy MCP server with one tool, whose result has as many bytes as the call asks for. */
import { createInterface } from 'node:readline';

const results = {
  initialize: {
    protocolVersion: '2025-11-25',
    capabilities: { tools: {} },
    serverInfo: { name: 'large', version: '1' },
  },
  'tools/list': { tools: [{ name: 'work', inputSchema: { type: 'object' } }] },
};
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const bytes = params?.arguments?.bytes ?? 0;
  const result =
    results[method] ?? (method === 'tools/call' ? { content: [{ type: 'text', text: 'x'.repeat(bytes) }] } : {});
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);
}
