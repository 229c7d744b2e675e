/** A stop as an orchestrator sees it: `/readyz` first, then running requests, then the port, then the servers. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { META, modernHeaders, rpc, send } from '../gateway/http-harness.js';
import { Workplace } from './hostler-process.js';

let place: Workplace;
beforeEach(() => {
  place = new Workplace();
});
afterEach(() => place.remove());

/** A server whose only tool answers once the file `release` exists. The server records its events. */
const holder = (folder: string) => `
  const fs = require('node:fs');
  const at = (name) => ${JSON.stringify(folder)} + '/' + name;
  const note = (what) => fs.appendFileSync(at('log'), what + '\\n');
  const say = (message) => console.log(JSON.stringify({ jsonrpc: '2.0', ...message }));
  const answers = {
    initialize: () => ({ protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } }),
    'tools/list': () => ({ tools: [{ name: 'hold', inputSchema: { type: 'object' } }] }),
  };
  const lines = require('node:readline').createInterface({ input: process.stdin });
  lines.on('close', () => { note('stopped'); process.exit(0); });
  lines.on('line', (line) => {
    const { id, method } = JSON.parse(line);
    if (answers[method]) return say({ id, result: answers[method]() });
    if (method !== 'tools/call') return id !== undefined && say({ id, error: { code: -32601, message: 'no' } });
    note('called');
    const looking = setInterval(() => {
      if (!fs.existsSync(at('release'))) return;
      clearInterval(looking);
      note('answered');
      say({ id, result: { content: [] } });
    }, 10);
  });
`;

test('E14 SIGTERM during a call: not ready, drained, port closed, servers stopped', async () => {
  const log = path.join(place.folder, 'log');
  const noted = () => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []);
  place.configure({
    mcpServers: { one: { command: process.execPath, args: ['-e', holder(place.folder)] } },
    listen: { drain: '60s' },
  });
  const running = place.up();
  const ready = await running.ready();
  const port = Number(new URL(ready.url).port);
  const key = `Bearer ${ready.key}`;
  const probe = (page: string) =>
    send(port, { method: 'GET', path: page, key: undefined, headers: { host: '10.0.3.7:8383' } });
  const params = { name: 'one__hold', arguments: {} };
  const call = (id: number) =>
    send(port, {
      key,
      body: rpc(id, 'tools/call', { ...params, _meta: META }),
      headers: modernHeaders('tools/call', params),
    });
  await eventually(
    '/readyz answers 200 to a request with another Host header',
    async () => (await probe('/readyz')).status === 200,
  );
  expect(JSON.parse((await probe('/healthz')).text)).toEqual({ ok: true });
  const held = call(1);
  await eventually('the call is at the server', () => noted().includes('called'));

  running.child.kill('SIGTERM');
  const stopping = await eventually('/readyz no longer answers 200', async () => {
    const reply = await probe('/readyz');
    return reply.status === 503 && reply;
  });
  expect(JSON.parse(stopping.text)).toEqual({ ready: false, reason: 'stopping' });
  expect((await probe('/healthz')).status).toBe(200);
  const refused = await call(2);
  expect([refused.status, refused.headers['retry-after']]).toEqual([503, '5']);
  const metrics = await send(port, { method: 'GET', path: '/metrics', key, headers: { host: 'scraper.local' } });
  expect([metrics.status, metrics.text]).toEqual([200, expect.stringContaining('hostler_')]);
  expect([noted(), running.child.exitCode]).toEqual([['called'], null]);

  writeFileSync(path.join(place.folder, 'release'), '');
  expect((await held).json().result).toMatchObject({ content: [] });
  expect((await running.closed).code).toBe(0);
  await expect(probe('/readyz')).rejects.toThrow('ECONNREFUSED');
  expect(noted()).toEqual(['called', 'answered', 'stopped']);
});
