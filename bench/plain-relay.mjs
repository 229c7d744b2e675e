/**
 * The baseline for the gateway: takes HTTP requests, parses the JSON, replaces the id and sends them to one upstream. No keys,
 * limits, policy or supervision.
 * Arguments: `stdio <command> [args]` or `http <url>`. Prints `listening <url>`; exits when stdin ends.
 */
import { createServer } from 'node:http';
import process from 'node:process';
import { Pool } from 'undici';
import { lineClient } from './line-client.mjs';

const [kind, ...target] = process.argv.slice(2);

/** Both functions take a message and resolve with its answer. */
const overStdio = ([command, ...args]) => lineClient(command, args).send;

function overHttp([url]) {
  const { origin, pathname: path } = new URL(url);
  const pool = new Pool(origin, { connections: 64, pipelining: 1 });
  const fixed = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  let lastId = 0;
  return async (message, done, incoming) => {
    const headers = {
      ...fixed,
      'mcp-protocol-version': incoming['mcp-protocol-version'],
      'mcp-method': incoming['mcp-method'],
      'mcp-name': incoming['mcp-name'],
    };
    const body = JSON.stringify({ ...message, id: ++lastId });
    const answer = await pool.request({ method: 'POST', path, headers, body });
    done(await answer.body.json());
  };
}

const relay = kind === 'stdio' ? overStdio(target) : overHttp(target);

const server = createServer((request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const message = JSON.parse((chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)).toString('utf8'));
    void relay(
      message,
      (answer) => {
        const text = JSON.stringify({ ...answer, id: message.id });
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
        response.end(text);
      },
      request.headers,
    );
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => process.stdout.write(`listening http://127.0.0.1:${server.address().port}/mcp\n`));
process.stdin.resume().once('end', () => process.exit(0));
