/**
 * A model on loopback for the agents of agents.mjs, with the interfaces of OpenAI and of Anthropic. It asks for one tool, and ends the
 * conversation when it has the answer. Its requests show which tools the agent has listed.
 */
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

const callId = 'call_1';

/** The lines of an answer with the call of a tool; without a name, of an answer with text. */
const dialects = {
  openai: (name) => {
    const call = { index: 0, id: callId, type: 'function', function: { name, arguments: '{}' } };
    const chunk = (delta, reason) => ({
      ...{ id: 'answer', object: 'chat.completion.chunk', created: 1, model: 'model' },
      choices: [{ index: 0, delta, finish_reason: reason }],
    });
    const delta = name === undefined ? { content: 'done' } : { tool_calls: [call] };
    const chunks = [
      chunk({ role: 'assistant', ...delta }, null),
      chunk({}, name === undefined ? 'stop' : 'tool_calls'),
    ];
    return [...chunks.map((each) => `data: ${JSON.stringify(each)}\n\n`), 'data: [DONE]\n\n'];
  },
  anthropic: (name) => {
    const isText = name === undefined;
    const usage = { input_tokens: 1, output_tokens: 1 };
    const message = { id: 'answer', type: 'message', role: 'assistant', model: 'model', content: [], usage };
    const block = isText ? { type: 'text', text: '' } : { type: 'tool_use', id: callId, name, input: {} };
    const delta = isText ? { type: 'text_delta', text: 'done' } : { type: 'input_json_delta', partial_json: '{}' };
    const events = [
      { type: 'message_start', message: { ...message, stop_reason: null, stop_sequence: null } },
      { type: 'content_block_start', index: 0, content_block: block },
      { type: 'content_block_delta', index: 0, delta },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: isText ? 'end_turn' : 'tool_use', stop_sequence: null }, usage },
      { type: 'message_stop' },
    ];
    return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  },
};

/** The result of the tool, in either dialect. */
const answerIn = (messages) =>
  messages
    .flatMap(({ role, content }) =>
      role === 'tool' ? [{ type: 'tool_result', content }] : Array.isArray(content) ? content : [],
    )
    .findLast(({ type }) => type === 'tool_result');

/** `tool`: the end of its name, because agents put a prefix in front. `seen.answer`: the result of the call as JSON. */
export async function openModel(tool) {
  const seen = { names: [], answer: undefined };
  const server = createServer(async (request, response) => {
    const body = await text(request);
    if (request.method !== 'POST') return response.writeHead(404).end();
    if (request.url.includes('count_tokens')) return response.end('{"input_tokens":1}');
    const { tools = [], messages = [] } = JSON.parse(body || '{}');
    const names = tools.map((each) => each.function?.name ?? each.name);
    if (names.length > seen.names.length) seen.names = names;
    const answer = answerIn(messages);
    if (answer) seen.answer = JSON.stringify(answer);
    const wanted = answer ? undefined : names.find((name) => name.endsWith(tool));
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const dialect = request.url.includes('/messages') ? dialects.anthropic : dialects.openai;
    for (const line of dialect(wanted)) response.write(line);
    response.end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, seen, close };
}
