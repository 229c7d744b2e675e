/** Who runs which call of a bundle, decided on a real server between hosts that know nothing of each other. */
import { connect } from '@nats-io/transport-node';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ClaimLog } from '../../../src/broker/nats/nats-claim-log.js';
import { connectNats } from '../../../src/broker/nats/nats-connect.js';
import type { NatsConnection } from '../../../src/broker/nats/nats-connection.js';
import { type NatsHost, natsHost } from '../../../src/broker/nats/nats-host.js';
import { NatsJournal } from '../../../src/broker/nats/nats-journal.js';
import { namesOf } from '../../../src/broker/nats/nats-names.js';
import type { Bundle, CallClaim, Claimed } from '../../../src/broker/ports.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { HostError } from '../../../src/kernel/errors.js';
import { eventually } from '../../eventually.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';
import { inAnHour, never } from './nats-rig.js';
import { tcpCut } from './tcp-cut.js';

let server: NatsServerFake;
const opened: NatsHost[] = [];

const hostNamed = (instance: string, url = server.url): NatsHost => {
  const credentials = new Map([['w1', { role: undefined }]]);
  const host = natsHost({ url, instance, credentials, durability: 'process' });
  opened.push(host);
  return host;
};
/** As one host was handed it. */
const bundle = (id = 'B'): Bundle => new ClaimLog(id, inAnHour());
const claimOf = (key: string, its: Bundle, changes: Partial<CallClaim> = {}): CallClaim => ({
  ...{ mailbox: 'w1', key, bundle: its, hash: `hash of ${key}`, rememberUntil: inAnHour(), isRepeatable: false },
  ...changes,
});
const keys = (count: number) => Array.from({ length: count }, (_, n) => `k${n}`);
const kinds = (said: readonly Claimed[]) => said.map(({ kind }) => kind);
const claimAll = ({ journal }: NatsHost, all: readonly string[], its: Bundle, changes?: Partial<CallClaim>) =>
  Promise.all(all.map((key) => journal.claim(claimOf(key, its, changes))));

beforeEach(async () => {
  server = await startNatsServer();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((host) => host.close()));
  await server.stop();
});

test('D-40 of hosts that claim a bundle at once exactly one may run each call, 100 times', async () => {
  const hosts = ['a', 'b', 'c'].map((name) => hostNamed(name));
  for (let round = 0; round < 100; round++) {
    // Each begins with another part, so that several claims are written.
    const parts = [keys(6), keys(9).slice(3), [...keys(9)].reverse()];
    const said = await Promise.all(
      hosts.map(async (host, at) => {
        const its = bundle(`B${round}`);
        const first = await claimAll(host, (parts[at] as string[]).slice(0, 3), its);
        const rest = await claimAll(host, (parts[at] as string[]).slice(3), its);
        return [...first, ...rest].map(({ kind }, n) => [parts[at]?.[n], kind] as const);
      }),
    );
    for (const key of keys(9)) {
      const told = said.flat().filter(([its]) => its === key);
      expect(told.filter(([, kind]) => kind === 'mine').length).toBe(1);
      expect(told.filter(([, kind]) => kind !== 'mine').every(([, kind]) => kind === 'elsewhere')).toBe(true);
    }
  }
});

test('D-40 of one host that claims a call many times at once one claim is its own', async () => {
  const host = hostNamed('a');
  const its = bundle();
  const said = kinds(await claimAll(host, [...keys(4), ...keys(4), ...keys(4)], its));
  expect(said.filter((kind) => kind === 'mine').length).toBe(4);
  expect(said.filter((kind) => kind === 'running').length).toBe(8);
  // The same when its bundle was handed out anew.
  expect(kinds(await claimAll(host, keys(4), bundle()))).toEqual(['running', 'running', 'running', 'running']);
});

test('B11 each is answered with its own result, here and elsewhere, and refused with other arguments', async () => {
  const [a, b] = [hostNamed('a'), hostNamed('b')];
  const its = bundle();
  await claimAll(a, keys(5), its);
  const reply = (key: string) => Buffer.from(`{"of":"${key}"}`);
  // In three records: two turns, and one that is not finished.
  await Promise.all(['k0', 'k1'].map((key) => a.journal.finish('w1', key, reply(key), its)));
  await Promise.all(['k2', 'k3'].map((key) => a.journal.finish('w1', key, reply(key), its)));
  for (const host of [a, b]) {
    const said = await claimAll(host, keys(5), bundle());
    expect(said.slice(0, 4)).toEqual(keys(4).map((key) => ({ kind: 'done', reply: reply(key) })));
    expect(said[4]?.kind).toBe(host === a ? 'running' : 'elsewhere');
    expect(await host.journal.claim(claimOf('k0', bundle(), { hash: 'another' }))).toEqual({ kind: 'conflict' });
    expect(await host.journal.find('w1', 'k3', { bundle: bundle() })).toEqual({ kind: 'done', reply: reply('k3') });
    expect(await host.journal.find('w1', 'k9', { bundle: bundle() })).toBeUndefined();
    // A key of a bundle is not that key alone, nor that of another bundle.
    expect(await host.journal.find('w1', 'k3')).toBeUndefined();
    expect(await host.journal.find('w1', 'k3', { bundle: bundle('C') })).toBeUndefined();
  }
});

test('D-40 a claim whose host is gone is lost; where the tool may be repeated one of the others takes it', async () => {
  const [a, b, c] = [hostNamed('a'), hostNamed('b'), hostNamed('c')];
  const its = bundle();
  await claimAll(a, keys(4), its);
  await a.journal.finish('w1', 'k0', Buffer.from('{}'), its);
  await a.close();
  expect(kinds(await claimAll(b, keys(2), bundle()))).toEqual(['done', 'lost']);
  const said = await Promise.all([b, c].map((host) => claimAll(host, ['k2', 'k3'], bundle(), { isRepeatable: true })));
  for (const at of [0, 1]) expect(said.map((each) => each[at]?.kind).sort()).toEqual(['elsewhere', 'mine']);
  expect(await c.journal.claim(claimOf('k1', bundle()))).toEqual({ kind: 'lost' });
});

test('D-40 a claim whose receipt was lost was not run, and is run once: by its host, or by the one that asks it', async () => {
  const way = await tcpCut(server.port);
  const [a, b] = [hostNamed('a', way.url), hostNamed('b')];
  const client = await connect({ servers: server.url });
  const claimUnheard = async (id: string) => {
    await eventually('to be connected', () =>
      a.journal.claim(claimOf('before', bundle(`before-${id}`))).catch(() => undefined),
    );
    way.deafen();
    const asking = claimAll(a, keys(3), bundle(id));
    asking.catch(() => {});
    await eventually('the claim', async () => {
      const said = await client.request(`$JS.API.DIRECT.GET.HOSTLER_CLAIMS_w1.hostler.claim.w1.${id}.0`);
      return said.headers?.code !== 404;
    });
    way.cut();
    await expect(asking).rejects.toMatchObject({ code: 'transport' });
  };
  await claimUnheard('own');
  const its = bundle('own');
  expect(kinds(await claimAll(a, keys(3), its))).toEqual(['mine', 'mine', 'mine']);
  expect(kinds(await claimAll(b, keys(3), bundle('own')))).toEqual(['elsewhere', 'elsewhere', 'elsewhere']);
  // One after the other, by hosts that may have lost count of the records of that claim.
  for (const key of keys(3)) await a.journal.finish('w1', key, Buffer.from(`"${key}"`), its);
  const found = await claimAll(b, keys(3), bundle('own'));
  expect(found).toEqual(keys(3).map((key) => ({ kind: 'done', reply: Buffer.from(`"${key}"`) })));
  await claimUnheard('other');
  await a.journal.claim(claimOf('back', bundle('back')));
  expect(kinds(await claimAll(b, keys(3), bundle('other')))).toEqual(['mine', 'mine', 'mine']);
  expect(kinds(await claimAll(a, keys(3), bundle('other')))).toEqual(['elsewhere', 'elsewhere', 'elsewhere']);
  await client.close();
  await way.close();
});

test('D-40 one that ran and has no result is not taken for one whose receipt was lost, however often it is claimed', async () => {
  const way = await tcpCut(server.port);
  const [a, b] = [hostNamed('a', way.url), hostNamed('b')];
  const its = bundle();
  expect(kinds(await claimAll(a, keys(2), its))).toEqual(['mine', 'mine']);
  const ended = keys(2).map((key) => a.journal.finish('w1', key, Buffer.alloc(5 * 1024 * 1024), its));
  for (const each of ended) await expect(each).rejects.toThrow();
  for (const host of [a, b]) {
    way.deafen();
    const asking = claimAll(a, keys(2), bundle());
    asking.catch(() => {});
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    way.cut();
    await expect(asking).rejects.toMatchObject({ code: 'transport' });
    await eventually('to be back', () => a.journal.claim(claimOf('other', bundle('C'))).catch(() => undefined));
    expect(kinds(await claimAll(host, keys(2), bundle()))).toEqual(['lost', 'lost']);
  }
  await way.close();
});

test('D-40 results whose server is away wait for it, and are found then', async () => {
  const [a, b] = [hostNamed('a'), hostNamed('b')];
  const its = bundle();
  await claimAll(a, keys(3), its);
  await server.kill();
  const finishing = keys(3).map((key) => a.journal.finish('w1', key, Buffer.from(`"${key}"`), its));
  await server.start();
  await Promise.all(finishing);
  const again = await eventually('the other host', () => claimAll(b, keys(3), bundle()).catch(() => undefined));
  expect(again).toEqual(keys(3).map((key) => ({ kind: 'done', reply: Buffer.from(`"${key}"`) })));
});

test('D-40 a call that ended without a result is lost, though its host lives, and the others are not', async () => {
  const [a, b] = [hostNamed('a'), hostNamed('b')];
  const its = bundle();
  await claimAll(a, keys(2), its);
  const ended = keys(2).map((key, n) => a.journal.finish('w1', key, Buffer.alloc(n === 0 ? 5 * 1024 * 1024 : 2), its));
  await expect(ended[0]).rejects.toMatchObject({ code: 'result_too_large' });
  await ended[1];
  expect(kinds(await claimAll(b, keys(2), bundle()))).toEqual(['lost', 'done']);
  expect(await b.journal.claim(claimOf('k0', bundle(), { isRepeatable: true }))).toEqual({ kind: 'mine' });
});

test('records are read one after the other, and no further than to what is asked for', async () => {
  const a = hostNamed('a');
  const its = bundle();
  await claimAll(a, keys(8), its);
  for (const key of keys(6)) await a.journal.finish('w1', key, Buffer.from(`"${key}"`), its);
  const connection = await connectNats({ url: server.url, key: undefined, clock: systemClock, name: 'test' }, never);
  const read = connection.read.bind(connection);
  let [open, most] = [0, 0];
  let subjects: string[] = [];
  connection.read = async (stream, subject, withinMs) => {
    if (stream !== 'HOSTLER_REPLIES_w1') return read(stream, subject, withinMs);
    subjects.push(subject);
    most = Math.max(most, ++open);
    return read(stream, subject, withinMs).finally(() => open--);
  };
  const journal = new NatsJournal({
    ...{ names: namesOf(), connection: async () => connection, instance: 'x', boot: 'f'.repeat(32) },
    ...{ clock: systemClock, isClosed: () => false, sweep: () => {} },
  });
  const found = async (...asked: string[]) => {
    subjects = [];
    const log = bundle();
    const said = await Promise.all(asked.map((key) => journal.find('w1', key, { bundle: log })));
    return [...said.map((each) => (each?.kind === 'done' ? `${each.reply}` : each?.kind)), subjects.length];
  };
  expect(await found('k0')).toEqual(['"k0"', 1]);
  expect(await found('k3', 'k1')).toEqual(['"k3"', '"k1"', 4]);
  expect(await found('k7')).toEqual(['elsewhere', 8]);
  expect(most).toBe(1);
  await connection.close();
});

test.each(['comes too late', 'is lost'])(
  'D-40 a call that is begun while it is being closed keeps its claim when the closing one %s',
  async (end) => {
    hostNamed('a');
    await opened[0]?.depths();
    const connection = await connectNats({ url: server.url, key: undefined, clock: systemClock, name: 'test' }, never);
    const keep = connection.keep.bind(connection);
    const held: (() => void)[] = [];
    connection.keep = async (subject, body) => {
      if (subject === 'hostler.claim.w1.B.0' && held.length === 0) {
        await new Promise<void>((resolve) => held.push(resolve));
        if (end === 'is lost') throw new HostError('transport', 'lost');
      }
      return keep(subject, body);
    };
    const journal = new NatsJournal({
      ...{ names: namesOf(), connection: async () => connection, instance: 'x', boot: 'f'.repeat(32) },
      ...{ clock: systemClock, isClosed: () => false, sweep: () => {} },
    });
    const its = bundle();
    const closing = journal.close('w1', 'k0', bundle(), Buffer.from('"not executed"'), false);
    await eventually('it to be on its way', () => held.length === 1);
    expect(await journal.claim(claimOf('k0', its))).toEqual({ kind: 'mine' });
    held[0]?.();
    await expect(closing).rejects.toMatchObject({ code: 'transport' });
    expect(journal.stateOf('w1/B/k0 1')).toBe('running');
    await journal.finish('w1', 'k0', Buffer.from('"ran"'), its);
    expect(await journal.find('w1', 'k0', { bundle: bundle() })).toEqual({ kind: 'done', reply: Buffer.from('"ran"') });
    await connection.close();
  },
);

test('what is kept of a bundle is removed after the end of all its calls, and not before', async () => {
  hostNamed('a');
  await opened[0]?.depths();
  const connection: NatsConnection = await connectNats(
    { url: server.url, key: undefined, clock: systemClock, name: 'test' },
    never,
  );
  const swept: { stream: string; until: Date }[] = [];
  const journal = new NatsJournal({
    ...{ names: namesOf(), connection: async () => connection, instance: 'x', boot: 'f'.repeat(32) },
    ...{ clock: systemClock, isClosed: () => false },
    sweep: ({ stream }, until) => swept.push({ stream, until }),
  });
  const last = new Date(Date.now() + 7_200_000);
  const its = new ClaimLog('B', last);
  const soon = new Date(Date.now() + 1_000);
  await Promise.all(keys(2).map((key) => journal.claim(claimOf(key, its, { rememberUntil: soon }))));
  await journal.finish('w1', 'k0', Buffer.from('{}'), its);
  expect(swept.map(({ stream }) => stream)).toEqual(['HOSTLER_REPLIES_w1']);
  await journal.finish('w1', 'k1', Buffer.from('{}'), its);
  expect(swept.map(({ stream }) => stream)).toEqual(['HOSTLER_REPLIES_w1', 'HOSTLER_REPLIES_w1', 'HOSTLER_CLAIMS_w1']);
  // A call of the same bundle may come until then; whoever reads its claims must find the first of them.
  for (const { until } of swept) expect(until.getTime()).toBeGreaterThan(last.getTime() + 600_000);
  await connection.close();
});
