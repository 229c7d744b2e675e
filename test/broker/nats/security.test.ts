/** What a key of a worker lets it do on a real server under the configuration that we write, and what not. */
import { connect, headers, type MsgHdrs, nkeyAuthenticator } from '@nats-io/transport-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { natsServerConfig } from '../../../src/broker/nats/nats-server-config.js';
import { openNatsWorkerLink } from '../../../src/broker/nats/nats-worker-link.js';
import { newUserPair, type UserPair } from '../../../src/broker/nats/user-pair.js';
import { eventually } from '../../eventually.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';
import { inAnHour, isEmpty, never, type RigHost, type RigWorker, request, startHost, startWorker } from './nats-rig.js';

let server: NatsServerFake;
let keys: Record<'host' | 'w1' | 'w2' | 'stranger' | 'next', UserPair>;
let host: RigHost;
let victim: RigWorker;
let configOf: (workers: readonly ('w1' | 'w2')[]) => string;

/** A client of nobody's making, with the key of worker 1. */
const attacker = () =>
  connect({
    servers: server.url,
    authenticator: nkeyAuthenticator(new TextEncoder().encode(keys.w1.seed)),
    reconnect: false,
  });

beforeAll(async () => {
  const made = await Promise.all([newUserPair(), newUserPair(), newUserPair(), newUserPair(), newUserPair()]);
  keys = { host: made[0], w1: made[1], w2: made[2], stranger: made[3], next: made[4] };
  server = await startNatsServer({
    config({ port, storeDir }) {
      configOf = (workers) =>
        natsServerConfig({
          listen: `127.0.0.1:${port}`,
          storeDir,
          hosts: [keys.host.publicKey],
          workers: [
            ...workers.map((mailbox) => ({ mailbox, publicKey: keys[mailbox].publicKey })),
            { mailbox: 'w2', publicKey: keys.next.publicKey },
          ],
        });
      return configOf(['w1', 'w2']);
    },
  });
  host = await startHost({ url: server.url, key: keys.host.seed, mailboxes: ['w1', 'w2'] });
  victim = await startWorker(server.url, 'w2', keys.w2.seed);
}, 30_000);

afterAll(async () => {
  await victim?.link.close();
  await host?.host.close();
  await server?.stop();
});

test('AC-BR1 with keys and accounts a call comes back, also what is told, and a manifest is read', async () => {
  const worker = await startWorker(server.url, 'w1', keys.w1.seed);
  await worker.link.send(request('a'));
  await eventually('the reply', () => worker.bodyOf('a') === '{"ran":{"id":"a"}}');
  host.link.tell('w1', '{"news":1}');
  host.link.tellAll('{"news":2}');
  await eventually('news', () => worker.told.length === 2);
  await host.link.keepManifest?.('reader', Buffer.from('{"tools":[]}'));
  expect((await worker.link.readManifest?.())?.toString()).toBe('{"tools":[]}');
  worker.link.cancel('a');
  await eventually('the cancel', () => host.cancelled.includes('a'));
  expect(host.joined).toContainEqual({ mailbox: 'w1', role: 'reader' });
  await worker.link.close();
});

test('AC-BR3 a key that the server does not know is refused for good, and so is none', async () => {
  for (const key of [keys.stranger.seed, undefined, 'w1:w1']) {
    const opening = openNatsWorkerLink({ url: server.url, key, mailbox: 'w1' })({ replied() {}, told() {} }, never);
    await expect(opening).rejects.toMatchObject({ code: 'unauthenticated' });
  }
});

test('AC-BR12 a worker cannot come as another, and hears that at once', async () => {
  const heard: string[] = [];
  const open = openNatsWorkerLink({ url: server.url, key: keys.w1.seed, mailbox: 'w2' });
  const opening = open({ replied: (id) => heard.push(id), told: (body) => heard.push(body.toString()) }, never);
  await expect(opening).rejects.toMatchObject({ code: 'denied' });
  expect(heard).toEqual([]);
});

test('AC-BR12 nothing of another mailbox, of the journal or of a host can be reached with the key of a worker', async () => {
  // Held for worker 2, and taken by nobody: what an attack would take away or change.
  await host.host.journal.claim({
    mailbox: 'w2',
    key: 'mine',
    hash: 'h',
    rememberUntil: inAnHour(),
    isRepeatable: false,
  });
  await host.link.keepManifest?.('reader', Buffer.from('{"tools":[]}'));
  const client = await attacker();
  const heard: string[] = [];
  for (const subject of ['hostler.out.w2', 'hostler.tell.w2', 'hostler.rep.>', 'hostler.>', '>'])
    client.subscribe(subject, { callback: (error, message) => void (error === null && heard.push(message.subject)) });
  const subjects = [
    ...['hostler.req.w2.x', 'hostler.claim.w1.x', 'hostler.claim.w2.x', 'hostler.rep.w1.r.x', 'hostler.rep.w2.r.x'],
    ...['hostler.rep.w2.m.x.1', 'hostler.dead.w2.x', 'hostler.manifest.w2', 'hostler.manifest.w1'],
    ...['hostler.cancel.w2.x', 'hostler.joined.w2', 'hostler.tell.w2', 'hostler.tellall', 'hostler.out.w2'],
    ...['$JS.API.STREAM.DELETE.HOSTLER_CLAIMS_w2', '$JS.API.STREAM.PURGE.HOSTLER_CLAIMS_w2'],
    ...[
      '$JS.API.STREAM.INFO.HOSTLER_CLAIMS_w1',
      '$JS.API.STREAM.NAMES',
      '$JS.API.CONSUMER.DELETE.HOSTLER_REQUESTS_w2.hosts',
    ],
    ...[
      '$JS.API.CONSUMER.MSG.NEXT.HOSTLER_REQUESTS_w1.hosts',
      '$JS.API.DIRECT.GET.HOSTLER_MANIFESTS.hostler.manifest.w2',
    ],
    ...['$JS.API.DIRECT.GET.HOSTLER_REPLIES_w2.hostler.rep.w2.r.x', '$JS.API.STREAM.MSG.GET.HOSTLER_REPLIES_w1'],
    ...['$JS.API.CONSUMER.DURABLE.CREATE.HOSTLER_REPLIES_w2.spy', '$JS.ACK.HOSTLER_REPLIES_w2.worker.1.1.1.1.0'],
  ];
  for (const subject of subjects)
    await expect(client.request(subject, '', { timeout: 250 }), subject).rejects.toThrow();
  await client.flush();
  expect(heard).toEqual([]);
  const again = { mailbox: 'w2', key: 'mine', hash: 'h', rememberUntil: inAnHour(), isRepeatable: false };
  expect(await host.host.journal.claim(again)).toEqual({ kind: 'running' });
  expect(host.cancelled).not.toContain('x');
  expect(victim.told).toEqual(expect.not.arrayContaining(['']));
  await client.close();
});

test("AC-BR12 the server's own answers cannot be turned against another: a reply subject stays in the account", async () => {
  const again = { mailbox: 'w2', key: 'turned', hash: 'h', rememberUntil: inAnHour(), isRepeatable: false };
  await host.host.journal.claim(again);
  const client = await attacker();
  const targets = [
    '$JS.API.STREAM.PURGE.HOSTLER_CLAIMS_w2',
    ...['hostler.req.w2.turned', 'hostler.cancel.w2.turned', 'hostler.rep.w2.r.turned', 'hostler.tell.w2'],
  ];
  const told = victim.told.length;
  targets.forEach((reply, at) => {
    client.publish(`hostler.req.w1.turn${at}`, '60000\n{}', { reply });
  });
  await client.flush();
  await eventually('the requests of the attacker', () => host.ran.filter((id) => id.startsWith('turn')).length === 5);
  // A call of the victim's own behind them: what they set off came before it.
  await victim.link.send(request('after'));
  await eventually('the reply', () => victim.bodyOf('after'));
  expect(await host.host.journal.claim(again)).toEqual({ kind: 'running' });
  expect(host.deliveries.filter(({ id, from }) => from.mailbox === 'w2' && id === 'turned')).toEqual([]);
  expect(host.cancelled).not.toContain('turned');
  expect(victim.told.length).toBe(told);
  await client.close();
});

/** With a name that no client writes, and that ours cannot read. */
const unreadable = (): MsgHdrs => {
  const made = headers();
  (made as unknown as { headers: Map<string, string[]> }).headers.set('a b', ['c']);
  return made;
};

test.each([
  ['cannot be read', unreadable],
  ['say that a queue is gone', () => headers(503, 'Consumer Deleted')],
  ['say that a pull is over', () => headers(408, 'Request Timeout')],
])('a request whose headers %s is one like any other, and its host stays', async (what, make) => {
  let isOver = false;
  void host.link.closed.then(() => {
    isOver = true;
  });
  const client = await attacker();
  const id = what.replaceAll(' ', '-');
  client.publish(`hostler.cancel.w1.${id}`, '', { headers: make() });
  client.publish('hostler.joined.w1', '', { headers: make() });
  await client.request(`hostler.req.w1.${id}`, '60000\n{}', { headers: make(), timeout: 5_000 });
  await victim.link.send(request(`after-${id}`));
  await eventually('the reply', () => victim.bodyOf(`after-${id}`));
  await eventually('empty queues', isEmpty(host));
  expect(host.ran.filter((each) => each === id)).toEqual([id]);
  expect(host.cancelled).toContain(id);
  expect(isOver).toBe(false);
  await client.close();
});

test('AC-BR13 a key taken out of the configuration ends its connection for good, and others stay', async () => {
  const worker = await startWorker(server.url, 'w1', keys.w1.seed);
  server.reload(configOf(['w2']));
  expect(await worker.link.closed).toBeDefined();
  await victim.link.send(request('still'));
  await eventually('the reply', () => victim.bodyOf('still'));
  const opening = openNatsWorkerLink({ url: server.url, key: keys.w1.seed, mailbox: 'w1' })(
    { replied() {}, told() {} },
    never,
  );
  await expect(opening).rejects.toMatchObject({ code: 'unauthenticated' });
});

test('two keys of one mailbox are let in as the same, so that one can be changed', async () => {
  const worker = await startWorker(server.url, 'w2', keys.next.seed);
  // Until the one before has heard that it was replaced, it takes what comes for the mailbox.
  expect(await victim.link.closed).toBeDefined();
  await worker.link.send(request('by-the-next-key'));
  await eventually('the reply', () => worker.bodyOf('by-the-next-key') !== undefined);
  await worker.link.close();
});
