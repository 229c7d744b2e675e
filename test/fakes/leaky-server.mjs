/**
 * A legacy MCP server over stdio that repeats its secret wherever it can: on stderr, in errors, in notifications, each time in five
 * encodings. Tools: `whoami` answers with a hash of the secret and the process id, `leak` fails with the secret, `sleep` takes
 * `ms` milliseconds, `crash` writes the secret to stderr and ends the process.
 */
import { createHash } from 'node:crypto';
import process from 'node:process';
import { createInterface } from 'node:readline';

const { TOKEN = '' } = process.env;
const bytes = Buffer.from(TOKEN);
const encoded = [TOKEN, bytes.toString('base64'), bytes.toString('base64url'), bytes.toString('hex')];
const leaks = [...encoded, encodeURIComponent(TOKEN), JSON.stringify(TOKEN)].join(' ');
process.stderr.write(`starting with ${leaks}\n`);

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const text = (value) => ({ content: [{ type: 'text', text: value }] });

const tools = {
  whoami: () => text(JSON.stringify({ hash: createHash('sha256').update(TOKEN).digest('hex'), pid: process.pid })),
  leak: () => {
    send({ method: 'notifications/message', params: { level: 'error', data: leaks } });
    throw new Error(`refused: ${leaks}`);
  },
  sleep: ({ ms }) => new Promise((resolve) => setTimeout(() => resolve(text('slept')), ms)),
  crash: () => {
    process.stderr.write(`Error: ${leaks}\n`);
    process.exit(1);
  },
};

const methods = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {}, logging: {} },
    serverInfo: { name: 'leaky', version: '1' },
  }),
  ping: () => ({}),
  'tools/list': () => ({ tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: 'object' } })) }),
  'tools/call': ({ name, arguments: args = {} }) => tools[name](args),
};

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params = {} } = JSON.parse(line);
  if (id === undefined || method === undefined) return;
  try {
    if (!methods[method]) send({ id, error: { code: -32601, message: 'Method not found' } });
    else send({ id, result: await methods[method](params) });
  } catch (error) {
    send({ id, error: { code: -32000, message: error.message, data: leaks } });
  }
});
