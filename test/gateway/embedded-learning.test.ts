/** A program that embeds a gateway or a broker with default settings: the tools of its servers are listed. */
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createBroker } from '../../src/broker/serve-workers.js';
import { connect } from '../../src/broker/worker/index.js';
import { listenEntry } from '../../src/config/listen-settings.js';
import { createGateway } from '../../src/gateway/gateway.js';
import { createHost, type Host } from '../../src/host/host.js';
import { eventually } from '../eventually.js';
import { META, modernHeaders, rpc, send } from './http-harness.js';

const ledgerServer = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));
const key = `hk_${'k'.repeat(43)}`;

let folder: string;
const ends: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'hostler-embedded-'));
});
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  rmSync(folder, { recursive: true, force: true });
});

const serverEntry = () => ({
  ...{ command: 'perl', args: [ledgerServer], pins: 'off' },
  env: {
    LEDGER: path.join(folder, 'ledger'),
    TOOLS: JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]),
  },
});
const config = () => ({
  mcpServers: { one: serverEntry() },
  roles: { all: { allow: ['*/*'] } },
  keys: { ann: { hash: `sha256:${createHash('sha256').update(key).digest('hex')}`, worker: 'ann', role: 'all' } },
  broker: { listen: { port: 0 } },
});
const settings = { listen: listenEntry.parse({ port: 0 }), auth: 'none', version: '1' } as const;

async function openHost(options = {}): Promise<Host> {
  const host = await createHost(config(), options);
  ends.push(() => host.close());
  return host;
}

test('E17 an embedded gateway lists the tools of servers that were never started, also of one that comes later', async () => {
  const host = await openHost();
  expect(host.status()[0]).toMatchObject({ run: 0, tools: 0 });
  const gateway = await createGateway({ host, settings });
  ends.push(() => gateway.close(0));
  const port = Number(new URL(await gateway.listen()).port);
  const listed = async () => {
    const { text } = await send(port, {
      body: rpc(1, 'tools/list', { _meta: META }),
      headers: modernHeaders('tools/list'),
    });
    return (JSON.parse(text) as { result: { tools: { name: string }[] } }).result.tools.map(({ name }) => name);
  };
  await eventually('its tool is listed', async () => (await listed()).includes('one__work'));
  await host.spawn({ name: 'two', ...serverEntry() }, { lazy: true });
  await eventually('the tool of the second server is listed', async () => (await listed()).includes('two__work'));
});

test('E17 a worker of an embedded broker calls a tool of a server that was never started', async () => {
  const host = await openHost();
  const broker = await createBroker({ host, config: config(), dataDir: folder });
  ends.push(() => broker.close());
  const tools = await connect({ broker: broker.url as string, key, connectMs: 20_000 });
  ends.push(() => tools.close());
  await eventually('the worker knows the tool', () => tools.list().length === 1);
  expect((await tools.execute('one', 'work', {})).isError).toBe(false);
});

test('E17 with learnAtBoot: false servers are not started before their first call', async () => {
  const host = await openHost({ learnAtBoot: false });
  const gateway = await createGateway({ host, settings });
  ends.push(() => gateway.close(0));
  await host.spawn({ name: 'two', ...serverEntry() }, { lazy: true });
  // The startup listing would begin in the same turn, so no wait is needed.
  await new Promise((resolve) => setImmediate(resolve));
  expect(host.status().map(({ run }) => run)).toEqual([0, 0]);
});
