/** What the key of a worker can reach on nats-server with the generated configuration. */
import { connect, headers, type MsgHdrs, type NatsConnection, nkeyAuthenticator } from '@nats-io/transport-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newUserPair } from '../../../src/broker/nats/nats-client.js';
import { openNatsConnection } from '../../../src/broker/nats/worker-connection.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { eventually } from '../../eventually.js';
import { NatsStage, never, type RigConnection, type RigHost, request } from './nats-rig.js';

let stage: NatsStage;
let host: RigHost;
let victim: RigConnection;
const clients: NatsConnection[] = [];

const clientWith = async (seed: string | undefined) => {
  const authenticator = nkeyAuthenticator(new TextEncoder().encode(seed));
  const client = await connect({ servers: stage.server.url, authenticator, reconnect: false });
  clients.push(client);
  return client;
};
/** Connects any NATS client, with the key of worker 1. */
const attacker = () => clientWith(stage.pairs.get('w1')?.seed);
const rowOf = (key: string) => host.nats.log.find({ worker: 'w2', epoch: 'e_w2', key });

beforeAll(async () => {
  stage = await NatsStage.start();
  host = await stage.host();
  victim = await stage.connect('w2');
}, 30_000);
afterAll(async () => {
  await Promise.all(clients.map((each) => each.close()));
  await stage.stop();
});

test('AC-BR3 a key that the server does not know is refused, and so is a connection without a key', async () => {
  for (const key of [(await newUserPair()).seed, undefined, 'w1:w1']) {
    const open = openNatsConnection({ url: stage.server.url, key, clock: systemClock });
    await expect(open({ session: 's', heard() {}, signal: never })).rejects.toMatchObject({ code: 'unauthenticated' });
  }
});

test('AC-BR12 the key decides which worker this is; another name is refused', async () => {
  const key = stage.pairs.get('w1')?.seed;
  const open = openNatsConnection({ url: stage.server.url, key, clock: systemClock, worker: 'w2' });
  await expect(open({ session: 's', heard() {}, signal: never })).rejects.toMatchObject({
    code: 'denied',
    message: "the key belongs to worker 'w1', not to 'w2'",
  });
});

test('AC-BR12 JetStream, other workers and hosts cannot be reached with the key of a worker', async () => {
  await victim.connection.call(request('mine'));
  await eventually('the reply', () => victim.replies.has('mine'));
  const client = await attacker();
  const heard: string[] = [];
  const own = new Set(['hostler.out.all']);
  for (const subject of ['hostler.out.w2.e_w2.>', 'hostler.out.>', 'hostler.in.>', '$KV.>', 'hostler.body.>', '>'])
    client.subscribe(subject, {
      callback: (error, message) => void (error === null && !own.has(message.subject) && heard.push(message.subject)),
    });
  const row = '$KV.hostler_calls.w2.e_w2.mine';
  const subjects = [
    ...['hostler.in.w2.e_w2.call.s_w2', 'hostler.in.w2.e_w2.ack.s_w2', 'hostler.out.w2.e_w2.one.s_w2', row],
    ...['hostler.body.w2.e_w2.mine', `hostler.host.${host.nats.log.owner}`, 'hostler.store', '$JS.API.INFO'],
    ...['$JS.API.STREAM.PURGE.KV_hostler_calls', '$JS.API.STREAM.DELETE.KV_hostler_calls', '$JS.API.STREAM.NAMES'],
    ...['$JS.API.STREAM.MSG.GET.KV_hostler_calls', '$JS.API.STREAM.MSG.DELETE.KV_hostler_calls'],
    ...[
      `$JS.API.DIRECT.GET.KV_hostler_calls.${row}`,
      '$JS.API.CONSUMER.CREATE.KV_hostler_calls',
      '$SYS.REQ.SERVER.PING',
    ],
  ];
  for (const subject of subjects)
    await expect(client.request(subject, '', { timeout: 250 }), subject).rejects.toThrow();
  // The host answers only the session that asks.
  await victim.connection.call(request('other'));
  await eventually('the reply', () => victim.replies.has('other'));
  await client.flush();
  expect(heard).toEqual([]);
  expect(await rowOf('mine')).toMatchObject({ state: 'done' });
});

test('AC-BR12 a reply subject reaches nothing outside the account: a host cannot be made to answer to JetStream or to another worker', async () => {
  await victim.connection.call(request('kept'));
  await eventually('the reply', () => victim.replies.has('kept'));
  const client = await attacker();
  const targets = [
    ...['$JS.API.STREAM.PURGE.KV_hostler_calls', '$JS.API.STREAM.DELETE.HOSTLER_BODIES', 'hostler.store'],
    ...['hostler.in.w2.e_w2.call.s_w2', 'hostler.out.w2.e_w2.one.s_w2', '$KV.hostler_calls.w2.e_w2.kept'],
  ];
  const body = (key: string) =>
    `{"v":1,"op":"call","key":"${key}","deadlineMs":60000,"server":"srv","tool":"run","args":{"key":"${key}"}}`;
  const before = victim.replies.size;
  targets.forEach((reply, at) => {
    client.publish('hostler.in.call.attack', body(`turn${at}`), { reply });
    client.publish('hostler.in.here.attack', '{"v":1,"op":"here","connection":"c"}', { reply });
    client.publish('hostler.in.manifest.attack', '{"v":1,"op":"manifest","id":"m"}', { reply });
  });
  await client.flush();
  await eventually(
    'the calls of the attacker ran',
    () => host.ran().filter((args) => args.includes('turn')).length === targets.length,
  );
  await victim.connection.call(request('after'));
  await eventually('the reply', () => victim.replies.has('after'));
  expect(await rowOf('kept')).toMatchObject({ state: 'done' });
  expect(victim.replies.size).toBe(before + 1);
});

/** With a name that no client writes, and that ours cannot read. */
const unreadable = (): MsgHdrs => {
  const made = headers();
  (made as unknown as { headers: Map<string, string[]> }).headers.set('a b', ['c']);
  return made;
};

test.each([
  ['cannot be read', unreadable],
  ['say that nobody listens', () => headers(503, 'No Responders')],
])('messages whose headers %s do not end the host', async (what, make) => {
  const client = await attacker();
  for (const operation of ['here', 'bye', 'call', 'cancel', 'ack', 'manifest', 'ask'])
    for (const body of ['', '{', '[]', '{"v":2}', `{"v":1,"op":"${operation}"}`])
      client.publish(`hostler.in.${operation}.s1`, body, { headers: make(), reply: '_INBOX.x' });
  await client.flush();
  const key = `after-${what.replaceAll(' ', '-')}`;
  await victim.connection.call(request(key));
  await eventually('the reply', () => victim.replies.has(key));
});

test('a worker cannot make a host believe that the store lost rows', async () => {
  const client = await attacker();
  const { storeId } = host.nats.log;
  const welcome = await client.request('hostler.in.here.attack', '{"v":1,"op":"here","connection":"c"}', {
    timeout: 2_000,
  });
  const { seen } = welcome.json<{ seen: string }>();
  for (const token of ['9007199254740000', `9007199254740000.${seen.split('.')[1]}`, '9.x', '-1.'])
    await client.request('hostler.in.here.attack', `{"v":1,"op":"here","connection":"c","seen":"${token}"}`, {
      timeout: 2_000,
    });
  expect(host.nats.log.storeId).toBe(storeId);
});

test('AC-BR13 the connection of a key ends when the key is removed from the server configuration, and others stay', async () => {
  const worker = await stage.connect('w1', 'revoked');
  const others = new Map([...stage.pairs].filter(([name]) => name !== 'w1'));
  await stage.reload(others);
  expect(await worker.connection.closed).toBeDefined();
  await victim.connection.call(request('still'));
  await eventually('the reply', () => victim.replies.has('still'));
  await expect(stage.connect('w1')).rejects.toMatchObject({ code: 'unauthenticated' });
});
