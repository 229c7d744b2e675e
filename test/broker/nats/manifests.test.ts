/** Manifests on a real nats-server: what workers make a host do for them, and what they find. */
import { connect, type NatsConnection } from '@nats-io/transport-node';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ids, NatsStage, type RigHost } from './nats-rig.js';

const slowMs = 60_000;
const stage = new NatsStage();
const mailboxes = ids(10, 'w');
const body = Buffer.from(JSON.stringify({ tools: 'x'.repeat(10_000) }));
let client: NatsConnection;

beforeEach(async () => {
  await stage.start();
  client = await connect({ servers: stage.server.url });
}, slowMs);
afterEach(async () => {
  await client.close();
  await stage.stop();
}, slowMs);

/** Of all manifests, since the server began. */
const writes = async (): Promise<number> => {
  const said = await client.request('$JS.API.STREAM.INFO.HOSTLER_MANIFESTS');
  return said.json<{ state: { last_seq: number } }>().state.last_seq;
};
const found = async (mailbox: string): Promise<string | undefined> => {
  const { link } = await stage.worker(mailbox);
  return (await link.readManifest?.())?.toString();
};
const keep = (rig: RigHost, mailbox?: string) => rig.link.keepManifest?.('reader', body, mailbox);

test('however often a worker comes or asks, its manifest is looked at, and nothing is written that is there', async () => {
  const rig = await stage.host({ mailboxes });
  await keep(rig, 'w0');
  expect([await writes(), await found('w9')]).toEqual([10, body.toString()]);
  await Promise.all(Array.from({ length: 500 }, () => keep(rig, 'w0')));
  expect(await writes()).toBe(10);
});

test('whoever comes finds what its host says, also where another host wrote something else or nothing is left', async () => {
  const rig = await stage.host({ mailboxes });
  await keep(rig);
  const other = await stage.host({ instance: 'h2', mailboxes });
  await other.link.keepManifest?.('reader', Buffer.from('"other"'));
  await keep(rig, 'w0');
  expect([await found('w0'), await found('w1')]).toEqual([body.toString(), '"other"']);
  await client.request('$JS.API.STREAM.PURGE.HOSTLER_MANIFESTS');
  // The second of them after the look that is under way, or was a moment ago.
  await Promise.all([keep(rig, 'w0'), keep(rig, 'w0')]);
  expect(await found('w0')).toBe(body.toString());
  await rig.link.close();
  await client.request('$JS.API.STREAM.PURGE.HOSTLER_MANIFESTS');
  await rig.reopen();
  await keep(rig, 'w0');
  expect(await found('w0')).toBe(body.toString());
});

test('a manifest of many mailboxes leaves room for calls', async () => {
  const many = ids(100, 'm');
  const rig = await stage.host({ mailboxes: many });
  const large = Buffer.alloc(800_000, 0x20);
  await rig.link.keepManifest?.('reader', large);
  expect(await writes()).toBe(many.length);
});
