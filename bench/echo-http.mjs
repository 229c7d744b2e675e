/**
 * The fastest echo server over HTTP that plain Node allows, so that a benchmark measures its client.
 * Both eras, without sessions; every answer is plain JSON. First prints `listening <url>`. With END_WITH_STDIN=1 it exits when its
 * stdin ends. With `?tools=N` in its URL it lists N tools.
 */
import { createServer } from 'node:http';
import process from 'node:process';

const modernVersion = '2026-07-28';
const versionKey = 'io.modelcontextprotocol/protocolVersion';
const serverInfo = { name: 'bench-echo', version: '1.0.0' };
const capabilities = { tools: {} };
const tool = {
  name: 'echo',
  description: 'Answers with its input.',
  inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
};

function toolsAt(url) {
  const count = Number(new URL(url, 'http://localhost').searchParams.get('tools') ?? 1);
  return [tool, ...Array.from({ length: count - 1 }, (_, i) => ({ ...tool, name: `tool${i}` }))];
}

const complete = `"resultType":"complete","_meta":${JSON.stringify({ 'io.modelcontextprotocol/serverInfo': serverInfo })}`;
const cacheable = `"ttlMs":0,"cacheScope":"private",${complete}`;

/** The members of the result as text; undefined for methods that no benchmark uses. */
function membersOf(method, params, modern, url) {
  switch (method) {
    case 'tools/call': {
      const members = `"content":[{"type":"text","text":${JSON.stringify(params.arguments.text)}}]`;
      return modern ? `${members},${complete}` : members;
    }
    case 'tools/list': {
      const members = `"tools":${JSON.stringify(toolsAt(url))}`;
      return modern ? `${members},${cacheable}` : members;
    }
    case 'server/discover':
      if (!modern) return undefined;
      return `"supportedVersions":["${modernVersion}"],"capabilities":${JSON.stringify(capabilities)},${cacheable}`;
    case 'initialize':
      return JSON.stringify({ protocolVersion: params.protocolVersion, capabilities, serverInfo }).slice(1, -1);
    case 'ping':
      return '';
  }
  return undefined;
}

function answer(response, body, url) {
  const { id, method, params } = JSON.parse(body);
  if (id === undefined) {
    response.writeHead(202).end();
    return;
  }
  const modern = params?._meta?.[versionKey] === modernVersion;
  const members = membersOf(method, params, modern, url);
  const rest = members === undefined ? '"error":{"code":-32601,"message":"Method not found"}' : `"result":{${members}}`;
  const text = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},${rest}}`;
  const status = members === undefined && modern ? 404 : 200;
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
}

const server = createServer((request, response) => {
  if (request.method !== 'POST') {
    response.writeHead(405, { allow: 'POST' }).end();
    return;
  }
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const body = (chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)).toString('utf8');
    answer(response, body, request.url);
  });
});
// A benchmark may pause between rounds, and its connections must stay open.
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`listening http://127.0.0.1:${server.address().port}/mcp\n`);
});
if (process.env.END_WITH_STDIN === '1') process.stdin.resume().once('end', () => process.exit(0));
