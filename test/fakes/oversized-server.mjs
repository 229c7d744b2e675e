/**
 * A server over stdio whose tool `big` answers with more bytes than one message may have. Its other tools record the call in the
 * ledger file and answer only while no `big` is in flight.
 * Arguments: the ledger file, and where `big` writes the id of its answer: `first`, `last` or `never`.
 */
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const [ledger, idAt] = process.argv.slice(2);
const tool = (name, hints = {}) => ({ name, annotations: hints, inputSchema: { type: 'object' } });
const tools = [tool('big', { readOnlyHint: true }), tool('write'), tool('read', { readOnlyHint: true })];
const payload = `{"content":[{"type":"text","text":"${'x'.repeat(9 * 1024 * 1024)}"}]}`;
const say = (text) => process.stdout.write(`${text}\n`);
const answer = (id, result) => say(JSON.stringify({ jsonrpc: '2.0', id, result }));
const frames = {
  first: (id) => `{"jsonrpc":"2.0","id":${id},"result":${payload}}`,
  last: (id) => `{"result":${payload},"jsonrpc":"2.0","id":${id}}`,
  never: () => `{"jsonrpc":"2.0","method":"notifications/message","params":${payload}}`,
};

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') {
    const { protocolVersion } = params;
    answer(id, { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'oversized', version: '1' } });
  } else if (method === 'tools/list') answer(id, { tools });
  else if (method === 'tools/call') {
    const { name, arguments: args } = params;
    appendFileSync(ledger, `${name} ${args.nonce ?? ''}\n`);
    if (name === 'big') say(frames[idAt](id));
    else if (args.isAnswered) answer(id, { content: [] });
  } else if (id !== undefined) answer(id, {});
});
