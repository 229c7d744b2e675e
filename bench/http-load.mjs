/**
 * Puts load on an MCP endpoint over HTTP with as little as possible of its own: one request text, its id swapped.
 * Arguments: url, key or '', `call` or `list`, name of the tool, concurrency, seconds. Prints {perSecond, p50Ms, p99Ms, bytes}.
 */
import process from 'node:process';
import { Pool } from 'undici';

const [url, key, what, name, concurrencyText, secondsText] = process.argv.slice(2);
const concurrency = Number(concurrencyText);
const { origin, pathname: path } = new URL(url);
const pool = new Pool(origin, { connections: concurrency, pipelining: 1 });
const version = '2026-07-28';
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"${version}","io.modelcontextprotocol/clientCapabilities":{}}`;
const isCall = what === 'call';
const method = isCall ? 'tools/call' : 'tools/list';
const headers = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'mcp-protocol-version': version,
  'mcp-method': method,
  ...(isCall ? { 'mcp-name': name } : {}),
  ...(key === '' ? {} : { authorization: `Bearer ${key}` }),
};
const text = 'x'.repeat(60);
const params = isCall ? `{"name":"${name}","arguments":{"text":"${text}"},${meta}}` : `{${meta}}`;
const rest = `,"method":"${method}","params":${params}}`;
let lastId = 0;
let bytes = 0;

async function once() {
  const body = `{"jsonrpc":"2.0","id":${++lastId}${rest}`;
  const answer = await pool.request({ method: 'POST', path, headers, body });
  const got = await answer.body.arrayBuffer();
  if (answer.statusCode !== 200) throw new Error(`${answer.statusCode}: ${Buffer.from(got).toString('utf8', 0, 300)}`);
  bytes = got.byteLength;
  return got;
}

async function load(forMs) {
  const tookMs = [];
  const untilMs = performance.now() + forMs;
  const startedMs = performance.now();
  const client = async () => {
    for (let nowMs = performance.now(); nowMs < untilMs; ) {
      await once();
      const endMs = performance.now();
      tookMs.push(endMs - nowMs);
      nowMs = endMs;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, client));
  const perSecond = (tookMs.length * 1_000) / (performance.now() - startedMs);
  tookMs.sort((a, b) => a - b);
  const at = (share) => tookMs[Math.floor(tookMs.length * share)];
  return { perSecond, p50Ms: at(0.5), p99Ms: at(0.99), bytes };
}

const first = JSON.parse(Buffer.from(await once()).toString('utf8'));
const isRight = isCall ? first.result?.content?.[0]?.text === text : Array.isArray(first.result?.tools);
if (!isRight) throw new Error(`wrong answer: ${JSON.stringify(first).slice(0, 500)}`);
await load((Number(secondsText) * 1_000) / 2);
console.log(JSON.stringify(await load(Number(secondsText) * 1_000)));
process.exit(0);
