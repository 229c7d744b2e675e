/**
 * The fastest echo server over stdio that plain Node allows, so that a benchmark measures its client.
 * Legacy era; answers server/discover with -32601. All answers to one chunk leave in one write.
 */
import process from 'node:process';

const initialized = (version) => ({
  protocolVersion: version,
  capabilities: { tools: {} },
  serverInfo: { name: 'bench-echo', version: '1.0.0' },
});
const tools = [
  {
    name: 'echo',
    description: 'Answers with its input.',
    inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  },
];

function answer({ id, method, params }) {
  if (id === undefined) return '';
  let body;
  if (method === 'tools/call')
    body = `"result":{"content":[{"type":"text","text":${JSON.stringify(params.arguments.text)}}]}`;
  else if (method === 'tools/list') body = `"result":${JSON.stringify({ tools })}`;
  else if (method === 'initialize') body = `"result":${JSON.stringify(initialized(params.protocolVersion))}`;
  else if (method === 'ping') body = '"result":{}';
  else body = '"error":{"code":-32601,"message":"Method not found"}';
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},${body}}\n`;
}

let parts = [];
process.stdin.on('data', (chunk) => {
  let out = '';
  let start = 0;
  for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
    let line = chunk.subarray(start, end);
    if (parts.length > 0) {
      parts.push(line);
      line = Buffer.concat(parts);
      parts = [];
    }
    start = end + 1;
    if (line.length > 0) out += answer(JSON.parse(line.toString('utf8')));
  }
  if (start < chunk.length) parts.push(chunk.subarray(start));
  if (out !== '') process.stdout.write(out);
});
process.stdin.on('end', () => process.exit(0));
