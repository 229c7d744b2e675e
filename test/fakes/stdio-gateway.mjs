/**
 * The stdio ingress of the built package over stdin and stdout of this process, with a small predictable router. It exits when the
 * pipe has ended. With REPORT=1 it prints the outcome of open requests to stderr.
 */
import process from 'node:process';
import { createStdioIngress } from '../../dist/gateway/stdio/stdio-ingress.js';
import { systemClock } from '../../dist/kernel/clock.js';
import { embedder } from '../../dist/policy/operation.js';

const tools = '"tools":[{"name":"echo","inputSchema":{"type":"object"}}]';
const said = { opened: 0, aborted: [] };
const sessions = [];

function call(exchange) {
  const { name, arguments: args } = JSON.parse(exchange.params);
  const isModern = exchange.client.era === 'modern';
  const result = (text) =>
    exchange.succeed(
      isModern ? '{"resultType":"complete",' : '{',
      '"content":[{"type":"text","text":',
      Buffer.from(JSON.stringify(text)),
      '}]}',
    );
  if (name === 'echo') return result(args.text);
  if (name === 'era') return result(`${exchange.client.era} ${exchange.client.version}`);
  if (name === 'progress') {
    const { progressToken } = JSON.parse(exchange.params)._meta;
    exchange.notify('notifications/progress', JSON.stringify({ progressToken, progress: 1 }));
    return result('done');
  }
  if (name === 'ask') {
    const params = '{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}';
    if (!exchange.ask) return result('cannot ask');
    exchange.ask('elicitation/create', params, { deadlineAtMs: systemClock.nowMs() + 5_000 }).then(
      ({ bytes }) => result(JSON.parse(bytes).content.name),
      (error) => exchange.fail({ code: -32603, message: error.message }),
    );
    return;
  }
  if (name === 'change') {
    for (const session of sessions) session.notify('notifications/tools/list_changed', undefined);
    return result('changed');
  }
  if (name === 'wait') return void exchange.signal.addEventListener('abort', () => said.aborted.push(args.text));
  exchange.fail({ code: -32602, message: 'unknown tool' });
}

const router = {
  hasEndpoint: () => true,
  mirroredArguments: () => undefined,
  opened: (session) => {
    said.opened++;
    sessions.push(session);
  },
  handle(exchange) {
    const { method, client } = exchange;
    const info = '"serverInfo":{"name":"fake","version":"1"}';
    switch (method) {
      case 'initialize':
        return exchange.succeed(
          `{"protocolVersion":"${client.version}","capabilities":{"tools":{"listChanged":true}},${info}}`,
        );
      case 'server/discover':
        return exchange.succeed(
          '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},',
          '"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}',
        );
      case 'tools/list':
        return exchange.succeed(
          client.era === 'modern' ? '{"resultType":"complete","ttlMs":0,"cacheScope":"private",' : '{',
          `${tools}}`,
        );
      case 'tools/call':
        return call(exchange);
      case 'subscriptions/listen': {
        const meta = `"_meta":{"io.modelcontextprotocol/subscriptionId":${exchange.idText}}`;
        exchange.notify(
          'notifications/subscriptions/acknowledged',
          `{"notifications":{"toolsListChanged":true},${meta}}`,
        );
        exchange.notify('notifications/tools/list_changed', `{${meta}}`);
        return void exchange.signal.addEventListener('abort', () => said.aborted.push('listen'));
      }
      default:
        return exchange.fail({ code: -32601, message: 'method not found' });
    }
  },
};

const ingress = createStdioIngress({
  router,
  clock: systemClock,
  input: process.stdin,
  output: process.stdout,
  principal: embedder,
  endpoint: { kind: 'all' },
  onProblem: (error) => console.error(error),
});
// In a real host, open requests keep the process alive; here this timer does.
const alive = setInterval(() => {}, 1_000);
await ingress.closed;
clearInterval(alive);
if (process.env.REPORT) process.stderr.write(`${JSON.stringify({ ...said, inFlight: ingress.inFlight })}\n`);
