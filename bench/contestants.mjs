/**
 * The clients that the benchmarks of wire and host compare. Each opens a connection to the same echo server and offers `call()`.
 * Not here: counting and timing (one-run.mjs), the comparison (wire.bench.mjs, host.bench.mjs).
 */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { Client as Client2, StreamableHTTPClientTransport as Http2 } from '@modelcontextprotocol/client';
import { StdioClientTransport as Stdio2 } from '@modelcontextprotocol/client/stdio';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as Stdio1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as Http1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Pool } from 'undici';
import { Connector, createHost, parseServerSpec } from '../dist/index.js';
import { lineClient } from './line-client.mjs';

const text = 'x'.repeat(60);
const args = { text };
/** Arguments as JSON text, as a relay receives them. */
const argsText = JSON.stringify(args);
const identity = { name: 'bench', version: '1.0.0' };

/** The raw loop: the upper limit for every client. */
async function rawStdio({ command, args: argv }) {
  const { send, close } = lineClient(command, argv);
  const message = { jsonrpc: '2.0', method: 'tools/call', params: { name: 'echo', arguments: args } };
  return {
    call: () => new Promise((resolve) => send(message, ({ result }) => resolve(result))),
    close: async () => close(),
  };
}

async function rawHttp({ url }) {
  const { origin, pathname: path } = new URL(url);
  const pool = new Pool(origin, { connections: 64, pipelining: 1 });
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  let lastId = 0;
  return {
    call: async () => {
      const message = { jsonrpc: '2.0', id: ++lastId, method: 'tools/call', params: { name: 'echo', arguments: args } };
      const { body } = await pool.request({ method: 'POST', path, headers, body: JSON.stringify(message) });
      return (await body.json()).result;
    },
    close: () => pool.close(),
  };
}

/** With `parse`, results become objects, as in the other clients. Without it, the bytes are passed on, as in a relay. */
const hostler =
  (parse) =>
  async ({ command, args: argv, url }) => {
    const connector = new Connector({ client: { ...identity, capabilities: {} } });
    const spec = parseServerSpec(url ? { name: 'echo', url } : { name: 'echo', command, args: argv });
    const session = await connector.connect(spec);
    return {
      call: () => {
        const sent = session.callTool('echo', args, { deadlineAtMs: performance.now() + 60_000 });
        return parse ? sent.then(({ bytes }) => JSON.parse(bytes.toString())) : sent.then(({ bytes }) => bytes);
      },
      close: async () => {
        await session.close();
        await connector.close();
      },
    };
  };

const sdk = (Client, transport) => async (server) => {
  const client = new Client(identity);
  await client.connect(transport(server));
  return { call: () => client.callTool({ name: 'echo', arguments: args }), close: () => client.close() };
};

const stateFolder = () => mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));

/** A session as the host uses it, but without the host. `options`: additional options of each call. */
const bareSession =
  (options = {}) =>
  async (spec) => {
    const stateDir = stateFolder();
    const connector = new Connector({ client: { ...identity, capabilities: {} }, stateDir });
    const session = await connector.connect(parseServerSpec({ name: 'echo', ...spec }));
    const call = () => session.callTool('echo', argsText, { deadlineAtMs: performance.now() + 60_000, ...options });
    return { call, close: () => closeAll(connector, stateDir) };
  };

/** A host with every stage of its pipeline. */
const host =
  (more = {}) =>
  async (spec) => {
    const stateDir = stateFolder();
    const opened = await createHost({ mcpServers: { echo: { ...spec, ...more } } }, { stateDir });
    return { call: () => opened.call('echo', 'echo', argsText), close: () => closeAll(opened, stateDir) };
  };

async function closeAll(opened, stateDir) {
  await opened.close();
  rmSync(stateDir, { recursive: true, force: true });
}

export const contestants = {
  host: {
    'bare session': bareSession(),
    // Sends a progress token, as the host does, so that progress can extend the deadline. For comparison only; no limit applies.
    'bare session, with a progress token': bareSession({
      extend: { byMs: 60_000, untilMs: Number.MAX_SAFE_INTEGER },
    }),
    host: host(),
    'host, cache off': host({ cache: 'off' }),
  },
  stdio: {
    'raw loop': rawStdio,
    hostler: hostler(true),
    'hostler, relaying bytes': hostler(false),
    'SDK 1.32': sdk(Client1, ({ command, args: argv }) => new Stdio1({ command, args: argv })),
    'SDK 2.4': sdk(Client2, ({ command, args: argv }) => new Stdio2({ command, args: argv })),
  },
  http: {
    'raw loop': rawHttp,
    hostler: hostler(true),
    'hostler, relaying bytes': hostler(false),
    'SDK 1.32': sdk(Client1, ({ url }) => new Http1(new URL(url))),
    'SDK 2.4': sdk(Client2, ({ url }) => new Http2(new URL(url))),
  },
};

/** Throws unless the answer of a contestant, in any of its forms, is the expected one. */
export function checkAnswer(answer) {
  const bytes = Buffer.isBuffer(answer) ? answer : answer.bytes;
  const result = bytes ? JSON.parse(bytes.toString()) : answer;
  if (result.content[0].text !== text) throw new Error(`wrong answer: ${JSON.stringify(result)}`);
}

export const echoStdio = { command: process.execPath, args: [new URL('./echo-stdio.mjs', import.meta.url).pathname] };
