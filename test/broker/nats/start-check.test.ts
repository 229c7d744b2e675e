/** What a host requires of a NATS server before it uses it. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { BrokerEvent } from '../../../src/broker/broker-events.js';
import { Identities } from '../../../src/broker/identities.js';
import { type NatsHostOptions, openNatsHost } from '../../../src/broker/nats/nats-host.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';

let server: NatsServerFake;
beforeAll(async () => {
  server = await startNatsServer();
});
afterAll(() => server.stop());

const opening = async (options: Partial<NatsHostOptions>) => {
  const host = await openNatsHost({
    ...{ url: server.url, key: undefined, durability: 'power', replicas: 1, monitor: undefined, clock: systemClock },
    ...{ identities: new Identities(new Map(), systemClock), onEvent: () => {}, ...options },
  });
  await host.close();
};
const process = { durability: 'process' } as const;

test('B13 a server that may lose what it acknowledged is refused, unless the configuration accepts that', async () => {
  await expect(opening({})).rejects.toMatchObject({
    code: 'invalid_spec',
    message: expect.stringContaining('loses power'),
    hint: expect.stringContaining("broker.durability: 'process'"),
    details: { field: 'broker.durability' },
  });
  await opening(process);
});

test('B13 a server whose own monitoring port says that it syncs every write is accepted', async () => {
  const client = await connect({ servers: server.url });
  const serverId = client.info?.server_id;
  await client.close();
  let varz: unknown = { server_id: serverId, jetstream: { config: { sync_always: true } } };
  const monitor = createServer((_request, response) => response.end(JSON.stringify(varz)));
  monitor.listen(0, '127.0.0.1');
  await once(monitor, 'listening');
  const url = `http://127.0.0.1:${(monitor.address() as { port: number }).port}`;
  await opening({ monitor: url });
  varz = { server_id: serverId, jetstream: { config: { sync_interval: 120_000_000_000 } } };
  await expect(opening({ monitor: url })).rejects.toMatchObject({ details: { field: 'broker.durability' } });
  varz = { server_id: 'another', jetstream: { config: { sync_always: true } } };
  await expect(opening({ monitor: url })).rejects.toMatchObject({ details: { field: 'broker.monitor' } });
  monitor.close();
  monitor.closeAllConnections();
  await expect(opening({ monitor: url, waitMs: 0 })).rejects.toMatchObject({ code: 'connect_failed' });
});

test('replicas on nats-server older than 2.11 are refused, unless a setting accepts them', async () => {
  await expect(opening({ ...process, replicas: 3 })).rejects.toMatchObject({
    code: 'invalid_spec',
    message: expect.stringContaining('needs nats-server 2.11'),
    details: { field: 'broker.replicas' },
  });
  // With the setting the version is accepted; then the server refuses, because it has no cluster.
  await expect(opening({ ...process, replicas: 3, unsafeReplicas: true })).rejects.toMatchObject({
    message: expect.stringContaining('too few servers'),
    details: { field: 'broker.replicas' },
  });
});

test.each([
  ['memory', { storage: 'memory', max_bytes: 1_000_000 }, 'storage', '"memory" instead of "file"'],
  ['discard old', { discard: 'old' }, 'discard', '"old" instead of "new"'],
])(
  'B13 a bucket with other settings (%s) is refused, with the difference',
  async (_what, settings, field, difference) => {
    await using other = await startNatsServer();
    const client = await connect({ servers: other.url });
    const jsm = await jetstreamManager(client);
    const config = {
      name: 'KV_hostler_calls',
      subjects: ['$KV.hostler_calls.>'],
      max_msgs_per_subject: 1,
      max_bytes: 268_435_456,
      ...settings,
    };
    await jsm.streams.add({ max_age: 900_000_000_000, storage: 'file', discard: 'new', ...config } as never);
    await client.close();
    await expect(opening({ ...process, url: other.url })).rejects.toMatchObject({
      code: 'invalid_spec',
      message: expect.stringContaining(difference),
      details: { field },
    });
  },
);

test.each([
  ['max_payload', 'max_payload: 1048576\njetstream { store_dir: "DIR", max_file: 2G }'],
  ['jetstream', 'max_payload: 8388608'],
  ['max_file', 'max_payload: 8388608\njetstream { store_dir: "DIR", max_mem: 1M, max_file: 300M }'],
])('a server whose %s does not fit is refused with the setting', async (field, text) => {
  await using other = await startNatsServer({
    config: ({ port, storeDir }) => `listen: "127.0.0.1:${port}"\n${text.replace('DIR', storeDir)}\n`,
  });
  await expect(opening({ ...process, url: other.url })).rejects.toMatchObject({
    code: 'invalid_spec',
    details: { field },
  });
});

test('the second host uses the stores that the first created; an error says that no server can be reached', async () => {
  await opening(process);
  await opening(process);
  await expect(opening({ url: 'nats://127.0.0.1:1', waitMs: 0 })).rejects.toMatchObject({
    code: 'connect_failed',
    message: 'the NATS server cannot be reached',
  });
});

test('a start waits for a nats-server that is away, and reports that once', async () => {
  await using other = await startNatsServer();
  await other.kill();
  const events: BrokerEvent[] = [];
  const opened = opening({ ...process, url: other.url, onEvent: (event) => events.push(event) });
  // Several attempts fail, 250 ms apart.
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await other.start();
  await opened;
  expect(events).toEqual([{ kind: 'problem', error: expect.objectContaining({ code: 'connect_failed' }) }]);
});

test.each(['nats://nats.example.com:4222', 'nats://10.0.0.1:4222'])(
  '%s: the key is not sent to another machine without TLS',
  async (url) => {
    await expect(opening({ url })).rejects.toMatchObject({ code: 'invalid_spec', details: { field: 'url' } });
  },
);

test.each(['http://x', 'nats:', 'wss://x', ''])('%s is not the address of a NATS server', async (url) => {
  await expect(opening({ url })).rejects.toMatchObject({ code: 'invalid_spec', details: { field: 'url' } });
});

test('an address that cannot be read is not quoted: it may contain a password', async () => {
  const error = await opening({ url: 'nats://user:secret-text@host:99999' }).catch((caught) => caught);
  expect(error).toMatchObject({ code: 'invalid_spec', details: { field: 'url' } });
  expect(JSON.stringify(error)).not.toContain('secret-text');
});

test('a key that is neither a seed nor user:password is refused, and not quoted', async () => {
  const error = await opening({ key: 'secret-text' }).catch((caught) => caught);
  expect(error).toMatchObject({ code: 'invalid_spec', details: { field: 'key' } });
  expect(JSON.stringify(error)).not.toContain('secret-text');
});
