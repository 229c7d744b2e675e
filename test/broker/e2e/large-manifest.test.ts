/** A role with more tools than fit into one message to a worker. */
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey, WorkerProcess } from './broker-place.js';

const place = new BrokerPlace();
afterAll(() => place.remove());

const largeEntry = (tools: number) => ({
  ...{ command: process.execPath, args: [fileURLToPath(new URL('./large-server.mjs', import.meta.url))], pins: 'off' },
  env: { TOOLS: String(tools), BYTES: '50000' },
});

test('a manifest above 4 MiB is an error that names role and server; status names the server; other roles are served', {
  timeout: 60_000,
}, async () => {
  const keys = { ann: newKey(), bob: newKey() };
  place.configure({
    mcpServers: {
      books: place.ledgerEntry('books'),
      one: largeEntry(50),
      two: largeEntry(60),
    },
    roles: { all: { allow: ['*/*'] }, reader: { allow: ['books/*'] } },
    keys: {
      ann: { hash: hashOf(keys.ann), worker: 'ann', role: 'all' },
      bob: { hash: hashOf(keys.bob), worker: 'bob', role: 'reader' },
    },
    broker: { listen: { port: 0 } },
  });
  const { broker } = (await place.up().ready()) as BrokerReady;
  const error = await place.worker(broker, keys.ann).catch((thrown) => thrown);
  expect(error).toMatchObject({ code: 'result_too_large', message: expect.stringContaining("role 'all'") });
  expect(`${error.message} ${error.hint}`).toContain('two');
  // A client of the worker sees that error, never an empty list.
  const client = new WorkerProcess(['--broker', broker, '--key-file', place.write('ann.key', keys.ann)]);
  const info = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  await client.ask('initialize', info);
  const { result, error: told } = await client.ask('tools/list', {});
  expect([result, JSON.stringify(told)]).toEqual([undefined, expect.stringContaining("role 'all'")]);
  client.child.stdin?.end();
  await client.closed;
  const status = await eventually('a note', async () => {
    const { stdout } = await place.hostler('status');
    return stdout.includes('4 MiB') ? stdout : undefined;
  });
  expect(status).toMatch(/! the tools of two are larger than 4 MiB/);
  const bob = await place.worker(broker, keys.bob);
  expect(bob.list().map(({ server, name }) => `${server}/${name}`)).toEqual(['books/work']);
  await bob.execute('books', 'work', { nonce: 'of-bob' });
});

test('a server whose own list is above 4 MiB says so in status', {
  timeout: 60_000,
}, async () => {
  const other = new BrokerPlace();
  try {
    const key = newKey();
    other.configure({
      mcpServers: { large: largeEntry(90) },
      roles: { all: { allow: ['*/*'] } },
      keys: { ann: { hash: hashOf(key), worker: 'ann', role: 'all' } },
      broker: { listen: { port: 0 } },
    });
    const { broker } = await other.upWithBroker();
    await other.worker(broker, key);
    const { stdout } = await other.hostler('status');
    expect(stdout).toContain("tools/list of server 'large' is too large");
    const { servers } = JSON.parse((await other.hostler('status', '--json')).stdout);
    expect(servers[0]).toMatchObject({ tools: 0, toolsError: "tools/list of server 'large' is too large" });
  } finally {
    await other.remove();
  }
});
