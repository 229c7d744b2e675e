/**
 * Sends load to an MCP endpoint over HTTP as cheaply as possible: one request text, with a new id each time.
 * Arguments: url, key or '', `call` or `list`, name of the tool, concurrency, seconds, and optionally the id of the process that
 * answers. Prints {perSecond, p50Ms, p99Ms, bytes}; with a process id {first, steady}, each with cpuUsPerCall of that process:
 * `first` is its first 3 s of load, `steady` begins after 8 s and 20,000 calls. On a busy machine 8 s may be too few calls to compile
 * the code.
 */
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { Pool } from 'undici';

const [url, key, what, name, concurrencyText, secondsText, pid] = process.argv.slice(2);
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

/** Linux counts in ticks of 10 ms. The second field may contain spaces, so fields are counted from its closing parenthesis. */
function cpuUs() {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

/** Sends load for at least `forMs`, and for at least `callsMin` calls. */
async function load(forMs, callsMin = 0) {
  const tookMs = [];
  const startedMs = performance.now();
  const untilMs = startedMs + forMs;
  const startedUs = pid === undefined ? 0 : cpuUs();
  const client = async () => {
    for (let nowMs = performance.now(); nowMs < untilMs || tookMs.length < callsMin; ) {
      await once();
      const endMs = performance.now();
      tookMs.push(endMs - nowMs);
      nowMs = endMs;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, client));
  const cpuUsPerCall = pid === undefined ? undefined : (cpuUs() - startedUs) / tookMs.length;
  const perSecond = (tookMs.length * 1_000) / (performance.now() - startedMs);
  tookMs.sort((a, b) => a - b);
  const at = (share) => tookMs[Math.floor(tookMs.length * share)];
  return { perSecond, p50Ms: at(0.5), p99Ms: at(0.99), bytes, cpuUsPerCall };
}

async function loadFresh(forMs) {
  const first = await load(3_000);
  await load(5_000, 20_000);
  return { first, steady: await load(forMs) };
}

const forMs = Number(secondsText) * 1_000;
const answer = JSON.parse(Buffer.from(await once()).toString('utf8'));
const isRight = isCall ? answer.result?.content?.[0]?.text === text : Array.isArray(answer.result?.tools);
if (!isRight) throw new Error(`wrong answer: ${JSON.stringify(answer).slice(0, 500)}`);
if (pid === undefined) await load(forMs / 2);
console.log(JSON.stringify(await (pid === undefined ? load(forMs) : loadFresh(forMs))));
process.exit(0);
