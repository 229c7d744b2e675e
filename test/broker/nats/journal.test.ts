/** Who runs a call, decided on a real server between hosts that know nothing of each other. */
import { connect } from '@nats-io/transport-node';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type NatsHost, natsHost } from '../../../src/broker/nats/nats-host.js';
import type { CallClaim, Claimed } from '../../../src/broker/ports.js';
import { eventually } from '../../eventually.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';
import { inAnHour, request, startHost, startWorker } from './nats-rig.js';
import { tcpCut } from './tcp-cut.js';

let server: NatsServerFake;
const opened: NatsHost[] = [];

const hostNamed = (instance: string, options: { url?: string; claimsMax?: number } = {}): NatsHost => {
  const credentials = new Map([['w1', { role: undefined }]]);
  const host = natsHost({ url: server.url, instance, credentials, durability: 'process', ...options });
  opened.push(host);
  return host;
};
const claimOf = (key: string, changes: Partial<CallClaim> = {}): CallClaim => ({
  ...{ mailbox: 'w1', key, hash: 'one', rememberUntil: inAnHour(), isRepeatable: false },
  ...changes,
});

beforeEach(async () => {
  server = await startNatsServer();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((host) => host.close()));
  await server.stop();
});

describe('one key', () => {
  test('D-40 of hosts that claim it at once exactly one may run it, 300 times', async () => {
    const hosts = ['a', 'b', 'c'].map((name) => hostNamed(name));
    const tally = { mine: 0, elsewhere: 0, running: 0 };
    for (let round = 0; round < 300; round++) {
      const said = await Promise.all(hosts.map(({ journal }) => journal.claim(claimOf(`k${round}`))));
      const kinds = said.map(({ kind }) => kind).sort();
      expect(kinds).toEqual(['elsewhere', 'elsewhere', 'mine']);
      for (const kind of kinds) tally[kind as keyof typeof tally]++;
    }
    expect(tally).toEqual({ mine: 300, elsewhere: 600, running: 0 });
  });

  test('D-40 of one host that claims it many times at once one claim is its own', async () => {
    const { journal } = hostNamed('a');
    const said = await Promise.all(Array.from({ length: 50 }, () => journal.claim(claimOf('k'))));
    expect(said.filter(({ kind }) => kind === 'mine').length).toBe(1);
    expect(said.filter(({ kind }) => kind === 'running').length).toBe(49);
  });

  test('B11 what was run is answered with its result, here and elsewhere, and refused with other arguments', async () => {
    const [a, b] = [hostNamed('a'), hostNamed('b')];
    const reply = Buffer.from('{"n":1}');
    expect(await a.journal.claim(claimOf('k'))).toEqual({ kind: 'mine' });
    await a.journal.finish('w1', 'k', reply);
    for (const { journal } of [a, b]) {
      expect(await journal.claim(claimOf('k'))).toEqual({ kind: 'done', reply });
      expect(await journal.claim(claimOf('k', { hash: 'two' }))).toEqual({ kind: 'conflict' });
      expect(await journal.claim(claimOf('k', { isRepeatable: true }))).toEqual({ kind: 'done', reply });
    }
  });

  test('B11 over 20 kills of the server the result stays, and no key is run a second time', async () => {
    const { journal } = hostNamed('a');
    for (let kill = 0; kill < 20; kill++) {
      const key = `k${kill}`;
      expect(await journal.claim(claimOf(key))).toEqual({ kind: 'mine' });
      await journal.finish('w1', key, Buffer.from(`{"n":${kill}}`));
      await server.kill();
      await server.start();
      const again = await eventually('the journal', () => journal.claim(claimOf(key)).catch(() => undefined));
      expect(again).toEqual({ kind: 'done', reply: Buffer.from(`{"n":${kill}}`) });
      expect(await journal.claim(claimOf(key, { hash: 'two' }))).toEqual({ kind: 'conflict' });
    }
    for (let kill = 0; kill < 20; kill++) {
      expect(await journal.claim(claimOf(`k${kill}`))).toMatchObject({ kind: 'done' });
    }
  });

  test('D-40 a claim whose host is gone is lost; where the tool may be repeated one of the others takes it', async () => {
    const [a, b, c] = [hostNamed('a'), hostNamed('b'), hostNamed('c')];
    await a.journal.claim(claimOf('once'));
    await a.journal.claim(claimOf('again'));
    expect(await b.journal.claim(claimOf('once'))).toEqual({ kind: 'elsewhere' });
    await a.close();
    expect(await b.journal.claim(claimOf('once'))).toEqual({ kind: 'lost' });
    const repeatable = claimOf('again', { isRepeatable: true });
    const said: Claimed[] = await Promise.all([b, c].map(({ journal }) => journal.claim(repeatable)));
    expect(said.map(({ kind }) => kind).sort()).toEqual(['elsewhere', 'mine']);
  });

  test('D-40 a host that lost its connection for a moment is not taken for dead', async () => {
    const way = await tcpCut(server.port);
    const [a, b] = [hostNamed('a', { url: way.url }), hostNamed('b')];
    await a.journal.claim(claimOf('k'));
    way.cut();
    const asking = b.journal.claim(claimOf('k'));
    // Whatever it does next brings it back.
    await eventually('to be back', () => a.journal.claim(claimOf('other')).catch(() => undefined));
    expect(await asking).toEqual({ kind: 'elsewhere' });
    await way.close();
  });

  test('D-40 a claim whose receipt was lost was not run, and is run once: by its host, or by the one that asks it', async () => {
    const way = await tcpCut(server.port);
    const [a, b] = [hostNamed('a', { url: way.url }), hostNamed('b')];
    const client = await connect({ servers: server.url });
    const claimUnheard = async (key: string) => {
      await eventually('to be connected', () => a.journal.claim(claimOf(`before-${key}`)).catch(() => undefined));
      way.deafen();
      const asking = a.journal.claim(claimOf(key));
      asking.catch(() => {});
      await eventually('the claim', async () => {
        const said = await client.request(`$JS.API.DIRECT.GET.HOSTLER_CLAIMS_w1.hostler.claim.w1.${key}`);
        return said.headers?.code !== 404;
      });
      way.cut();
      await expect(asking).rejects.toMatchObject({ code: 'transport' });
    };
    await claimUnheard('own');
    expect(await a.journal.claim(claimOf('own'))).toEqual({ kind: 'mine' });
    expect(await b.journal.claim(claimOf('own'))).toEqual({ kind: 'elsewhere' });
    await claimUnheard('other');
    await a.journal.claim(claimOf('back'));
    expect(await b.journal.claim(claimOf('other'))).toEqual({ kind: 'mine' });
    expect(await a.journal.claim(claimOf('other'))).toEqual({ kind: 'elsewhere' });
    await client.close();
    await way.close();
  });

  test('D-40 one that ran and has no result is not taken for one whose receipt was lost, however often it is claimed', async () => {
    const way = await tcpCut(server.port);
    const [a, b] = [hostNamed('a', { url: way.url }), hostNamed('b')];
    expect(await a.journal.claim(claimOf('k'))).toEqual({ kind: 'mine' });
    await expect(a.journal.finish('w1', 'k', Buffer.alloc(5 * 1024 * 1024))).rejects.toThrow();
    for (const { journal } of [a, b]) {
      way.deafen();
      const asking = a.journal.claim(claimOf('k'));
      asking.catch(() => {});
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
      way.cut();
      await expect(asking).rejects.toMatchObject({ code: 'transport' });
      await eventually('to be back', () => a.journal.claim(claimOf('other')).catch(() => undefined));
      expect(await journal.claim(claimOf('k'))).toEqual({ kind: 'lost' });
    }
    await way.close();
  });

  test('D-40 a result whose server is away waits for it, and is found then', async () => {
    const [a, b] = [hostNamed('a'), hostNamed('b')];
    await a.journal.claim(claimOf('k'));
    await server.kill();
    const finishing = a.journal.finish('w1', 'k', Buffer.from('{}'));
    await server.start();
    await finishing;
    const again = await eventually('the other host', () => b.journal.claim(claimOf('k')).catch(() => undefined));
    expect(again).toEqual({ kind: 'done', reply: Buffer.from('{}') });
  });

  test('D-40 a call that ended without a result is lost, though its host lives', async () => {
    const [a, b] = [hostNamed('a'), hostNamed('b')];
    await a.journal.claim(claimOf('k'));
    const tooLarge = a.journal.finish('w1', 'k', Buffer.alloc(5 * 1024 * 1024));
    await expect(tooLarge).rejects.toMatchObject({ code: 'result_too_large' });
    expect(await b.journal.claim(claimOf('k'))).toEqual({ kind: 'lost' });
    expect(await a.journal.claim(claimOf('k'))).toEqual({ kind: 'lost' });
    expect(await b.journal.claim(claimOf('k', { isRepeatable: true }))).toEqual({ kind: 'mine' });
  });

  test('B11 a full journal refuses rather than forgets', async () => {
    const { journal } = hostNamed('a', { claimsMax: 3 });
    for (const key of ['a', 'b', 'c']) expect(await journal.claim(claimOf(key))).toEqual({ kind: 'mine' });
    await expect(journal.claim(claimOf('d'))).rejects.toMatchObject({
      code: 'insufficient_storage',
      details: { execution: 'not_executed' },
    });
    expect(await journal.claim(claimOf('a'))).toEqual({ kind: 'running' });
  });
});

test('B11 a key that comes again in a new process of its worker is answered with the result, and run once', async () => {
  const rig = await startHost({ url: server.url });
  const first = await startWorker(server.url);
  await first.link.send(request('order-7'));
  await eventually('the reply', () => first.bodyOf('order-7'));
  await eventually('an empty queue', async () => (await rig.host.depths())[0]?.count === 0);
  await first.link.close();
  const second = await startWorker(server.url);
  await second.link.send(request('order-7'));
  expect(await eventually('the reply', () => second.bodyOf('order-7'))).toBe('{"ran":{"id":"order-7"}}');
  await eventually('an empty queue', async () => (await rig.host.depths())[0]?.count === 0);
  await second.link.send(request('order-7', { other: true }));
  await eventually('the refusal', () => second.replies.find(({ body }) => body === '{"conflict":true}'));
  expect(rig.ran).toEqual(['order-7']);
  await eventually('an empty queue', async () => (await rig.host.depths())[0]?.count === 0);
  // The refusal did not take the place of the result.
  await second.link.send(request('order-7'));
  await eventually(
    'the result again',
    () => second.replies.filter(({ body }) => body.startsWith('{"ran"')).length === 2,
  );
  await rig.host.close();
});
