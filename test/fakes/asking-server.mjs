/**
 * A legacy MCP server that asks its client in the middle of a call.
 * Tools: `ask` elicits and returns the answer; `hang` logs a line and answers only after `finish` is called; `pid` returns the
 * process id; `roots` returns the outcome of the question that the server sends right after the handshake. The prompt `greet`
 * elicits too. The server ignores cancellations.
 */
import process from 'node:process';

const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const text = (value) => ({ content: [{ type: 'text', text: value }], isError: false });
const tools = ['ask', 'hang', 'finish', 'pid', 'echo', 'roots'].map((name) => ({
  name,
  inputSchema: { type: 'object' },
  annotations: { readOnlyHint: true },
}));

const waiting = new Map();
let asks = 0;
let hanging;

let tellRoots;
const roots = new Promise((resolve) => {
  tellRoots = resolve;
});

function ask(message, told) {
  const id = `ask-${++asks}`;
  waiting.set(id, told);
  const requestedSchema = { type: 'object', properties: {} };
  say({ id, method: 'elicitation/create', params: { message, requestedSchema } });
}

const onTool = {
  ask: (id, args) => ask(args.message ?? 'who?', (told) => say({ id, result: { ...text(told), ttlMs: 60_000 } })),
  hang: (id) => {
    hanging = id;
    say({ method: 'notifications/message', params: { level: 'info', data: 'hanging' } });
  },
  finish: (id) => {
    say({ id: hanging, result: text('at last') });
    say({ id, result: text('finished') });
  },
  pid: (id) => say({ id, result: text(String(process.pid)) }),
  roots: (id) => roots.then((told) => say({ id, result: text(told) })),
  echo: (id, _args, params) => say({ id, result: text(JSON.stringify(params)) }),
};

function answer({ id, method, params, result, error }) {
  if (method === undefined) {
    const told = waiting.get(id);
    waiting.delete(id);
    return told?.(error ? `refused ${error.code}: ${error.message}` : JSON.stringify(result));
  }
  if (method === 'notifications/initialized') {
    waiting.set('roots', tellRoots);
    say({ id: 'roots', method: 'roots/list' });
  }
  if (id === undefined) return;
  if (method === 'initialize')
    return say({ id, result: { protocolVersion: '2025-11-25', capabilities: { tools: {}, prompts: {} } } });
  if (method === 'ping') return say({ id, result: {} });
  if (method === 'tools/list') return say({ id, result: { tools } });
  if (method === 'tools/call') return onTool[params.name](id, params.arguments, params);
  if (method === 'prompts/get')
    return ask('greet whom?', (told) => say({ id, result: { description: told, messages: [] } }));
  say({ id, error: { code: -32601, message: 'Method not found', data: { method } } });
}

let rest = '';
process.stdin.setEncoding('utf8').on('data', (chunk) => {
  const lines = (rest + chunk).split('\n');
  rest = lines.pop();
  for (const line of lines) answer(JSON.parse(line));
});
