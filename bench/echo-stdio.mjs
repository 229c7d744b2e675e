/**
 * The fastest echo server over stdio that plain Node allows, so that a benchmark measures its client.
 * Legacy era; answers server/discover with -32601. All answers to one chunk are written together. The argument is the delay of each
 * answer in milliseconds.
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

/**
 * A call without escapes is answered from its text alone: building and printing objects would cost as much as the
 * clients under test. Any other request is parsed.
 */
function answerLine(line) {
  const textAt = line.indexOf('"text":"') + 8;
  const textEnd = line.indexOf('"', textAt);
  const idAt = line.lastIndexOf('"id":') + 5;
  const id = Number.parseInt(line.slice(idAt, idAt + 16), 10);
  if (textAt < 8 || idAt < 5 || Number.isNaN(id) || line.includes('\\') || !line.includes('"method":"tools/call"')) {
    return answer(JSON.parse(line));
  }
  return `{"jsonrpc":"2.0","id":${id},"result":{"content":[{"type":"text","text":"${line.slice(textAt, textEnd)}"}]}}\n`;
}

const waitMs = Number(process.argv[2] ?? 0);
let rest = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  const text = rest + chunk;
  let out = '';
  let start = 0;
  for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', start)) {
    if (end > start) out += answerLine(text.slice(start, end));
    start = end + 1;
  }
  rest = start < text.length ? text.slice(start) : '';
  if (out === '') return;
  if (waitMs > 0) setTimeout(() => process.stdout.write(out), waitMs);
  else process.stdout.write(out);
});
process.stdin.on('end', () => process.exit(0));
