/** What a host looks at before it trusts a NATS server. */
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { connect } from '@nats-io/transport-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type NatsHostOptions, natsHost } from '../../../src/broker/nats/nats-host.js';
import { serveWorkers } from '../../../src/broker/serve-workers.js';
import type { ServedHost } from '../../../src/broker/service/served-host.js';
import { brokerEntry } from '../../../src/config/broker-settings.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';
import { never } from './nats-rig.js';

let server: NatsServerFake;
beforeAll(async () => {
  server = await startNatsServer();
});
afterAll(() => server.stop());

const opening = async (options: Partial<NatsHostOptions>) => {
  const host = natsHost({
    ...{ url: server.url, instance: 'h1', credentials: new Map([['w1', { role: undefined }]]) },
    ...options,
  });
  try {
    await host.open({ deliver() {}, cancelled() {} }, never);
  } finally {
    await host.close();
  }
};

/** Of no server, so nothing is called. */
const idleHost: ServedHost = {
  names: () => [],
  known: () => undefined,
  isAllowed: () => false,
  rulesRevision: 0,
  startupListing: () => undefined,
  onKnownChanged: () => () => {},
  mayRunTwice: () => false,
  call: () => Promise.reject(new Error('nobody calls')),
};

const makeStream = async (config: Record<string, unknown>) => {
  const client = await connect({ servers: server.url });
  await client.request(`$JS.API.STREAM.CREATE.${config.name}`, JSON.stringify(config));
  await client.close();
};

test('B13 a server that may lose what it acknowledged is refused, unless that is accepted in words', async () => {
  await expect(opening({})).rejects.toMatchObject({
    code: 'invalid_spec',
    message: expect.stringContaining('loses power'),
    hint: expect.stringContaining("durability: 'process'"),
  });
  await opening({ durability: 'process' });
});

test('B13 a server that says on its monitoring port that it syncs every write is taken, and no other', async () => {
  const client = await connect({ servers: server.url });
  const serverId = client.info?.server_id;
  await client.close();
  let varz: unknown = { server_id: serverId, jetstream: { config: { sync_always: true } } };
  const monitor = createServer((_request, response) => response.end(JSON.stringify(varz)));
  monitor.listen(0, '127.0.0.1');
  await once(monitor, 'listening');
  const monitorUrl = `http://127.0.0.1:${(monitor.address() as { port: number }).port}`;
  await opening({ monitorUrl });
  varz = { server_id: serverId, jetstream: { config: { sync_interval: 120_000_000_000 } } };
  await expect(opening({ monitorUrl })).rejects.toMatchObject({ code: 'invalid_spec' });
  varz = { server_id: 'another', jetstream: { config: { sync_always: true } } };
  await expect(opening({ monitorUrl })).rejects.toMatchObject({ details: { field: 'monitorUrl' } });
  monitor.close();
  monitor.closeAllConnections();
});

test('B13 the monitoring port that the configuration names is asked', async () => {
  const monitor = createServer((_request, response) => response.end('{}'));
  monitor.listen(0, '127.0.0.1');
  await once(monitor, 'listening');
  const { port } = monitor.address() as { port: number };
  const settings = brokerEntry.parse({ url: server.url, monitor: `http://127.0.0.1:${port}` });
  const asked = once(monitor, 'request') as Promise<[IncomingMessage]>;
  const workers = await serveWorkers({ host: idleHost, settings, keys: new Map(), dataDir: '/nowhere' });
  expect((await asked)[0].url).toBe('/varz');
  await workers.close();
  monitor.close();
  monitor.closeAllConnections();
});

test('B13 a stream that keeps messages in memory is refused, whatever is accepted', async () => {
  await makeStream({ name: 'MEM_CLAIMS_w1', subjects: ['mem.claim.w1.*'], storage: 'memory', max_msgs_per_subject: 1 });
  await expect(opening({ prefix: 'mem', durability: 'process' })).rejects.toMatchObject({
    code: 'invalid_spec',
    message: expect.stringMatching(/stream 'MEM_CLAIMS_w1' has storage "memory" instead of "file"/),
  });
});

test('B13 a stream with other settings is refused, with the difference', async () => {
  await makeStream({
    ...{ name: 'OLD_CLAIMS_w1', subjects: ['old.claim.w1.*'], storage: 'file', num_replicas: 1, retention: 'limits' },
    ...{ max_msg_size: 4_259_840, max_msgs_per_subject: 1, discard: 'old', allow_direct: true },
  });
  await expect(opening({ prefix: 'old', durability: 'process' })).rejects.toMatchObject({
    code: 'invalid_spec',
    message: 'stream \'OLD_CLAIMS_w1\' has discard "old" instead of "new"',
    details: { field: 'discard' },
  });
});

test('a stream that lacks only subjects is given them, and keeps what it holds; one with others is refused', async () => {
  const config = {
    ...{ name: 'FEW_CLAIMS_w1', storage: 'file', num_replicas: 1, retention: 'limits', allow_direct: true },
    ...{ max_msg_size: 4_259_840, max_msgs_per_subject: 1, discard: 'new', discard_new_per_subject: true },
    ...{ max_age: 50 * 3_600 * 1_000_000_000, max_msgs: 250_000, max_bytes: 64 * 1024 * 1024 },
  };
  await makeStream({ ...config, subjects: ['few.claim.w1.*'] });
  const client = await connect({ servers: server.url });
  await client.request('few.claim.w1.k', '{}');
  await opening({ prefix: 'few', durability: 'process' });
  const found = (await client.request('$JS.API.STREAM.INFO.FEW_CLAIMS_w1')).json();
  expect(found).toMatchObject({
    config: { subjects: ['few.claim.w1.*', 'few.claim.w1.*.*'], max_msgs: 250_000 },
    state: { messages: 1 },
  });
  await client.close();
  await makeStream({ ...config, name: 'ODD_CLAIMS_w1', subjects: ['odd.of.another'] });
  await expect(opening({ prefix: 'odd', durability: 'process' })).rejects.toMatchObject({
    details: { field: 'subjects' },
  });
});

test('B13 the second host finds what the first made, and both agree', async () => {
  await Promise.all([1, 2, 3].map(() => opening({ prefix: 'both', durability: 'process' })));
});

test('a server whose messages are too small is refused with the setting that helps', async () => {
  await using small = await startNatsServer({
    config: ({ port, storeDir }) => `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${storeDir}" }\n`,
  });
  await expect(opening({ url: small.url, durability: 'process' })).rejects.toMatchObject({
    code: 'invalid_spec',
    hint: expect.stringContaining('max_payload'),
  });
});

test('a server that is not there, or keeps nothing, is said so', async () => {
  await expect(opening({ url: 'nats://127.0.0.1:1', durability: 'process' })).rejects.toMatchObject({
    code: 'connect_failed',
    details: { execution: 'not_executed' },
  });
  await using plain = await startNatsServer({
    config: ({ port }) => `listen: "127.0.0.1:${port}"\nmax_payload: 8000000\n`,
  });
  await expect(opening({ url: plain.url, durability: 'process' })).rejects.toMatchObject({
    code: 'invalid_spec',
    hint: expect.stringContaining('JetStream'),
  });
});

test.each([
  ['with a password', 'nats://broker.example:4222', 'a:b'],
  ['with a seed', 'nats://192.0.2.1:4222', `SU${'A'.repeat(56)}`],
  ['without a scheme', 'broker.example:4222', undefined],
])('nothing goes to another machine in the clear, %s', async (_how, url, key) => {
  await expect(opening({ url, key })).rejects.toMatchObject({
    ...{ code: 'invalid_spec', message: expect.stringContaining('in the clear') },
    details: { field: 'url', execution: 'not_executed' },
  });
});

test('unless that was said: then it is tried', async () => {
  // A name that stands for nothing.
  await expect(opening({ url: 'nats://broker.invalid:4222', insecure: true })).rejects.toMatchObject({
    code: 'connect_failed',
  });
});
