/** What is set aside on a real server, and what an operator does with it. */
import { type NatsConnection as Client, connect } from '@nats-io/transport-node';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { carefulLetters } from '../../../src/broker/careful-letters.js';
import { ClaimLog } from '../../../src/broker/nats/nats-claim-log.js';
import { systemClock } from '../../../src/kernel/clock.js';
import type { HostError } from '../../../src/kernel/errors.js';
import { eventually } from '../../eventually.js';
import { fresh, inAnHour, isEmpty, NatsStage, type RigHost, request, startHost, startWorker } from './nats-rig.js';

const stage = new NatsStage();
const { host } = stage;
let client: Client;

const ways = [
  ['alone', undefined],
  ['in a bundle', 'B'],
] as const;

/** As if it had been set aside, out of that bundle. */
const letterOf = async (rig: RigHost, id: string, bundle?: string, sentAt = new Date(1)): Promise<number> => {
  const head = JSON.stringify({ sentAtMs: sentAt.getTime(), diedAtMs: Date.now(), reasons: [], bundle });
  await client.request(`hostler.dead.w1.${id}`, `${head}\n60000\n{"id":"${id}"}`);
  return (await rig.host.deadLetters()).find((each) => each.id === id)?.seq as number;
};
const idsOf = async (rig: RigHost) => (await rig.host.deadLetters()).map(({ id }) => id);

beforeEach(async () => {
  await stage.start();
  client = await connect({ servers: stage.server.url, reconnect: false });
});
afterEach(async () => {
  await client.close();
  await stage.stop();
});

test('B10 what still runs in its bundle is not put back, and what ran there is not run again', async () => {
  const [rig, other] = [await host(), await host({ instance: 'other', mailboxes: [] })];
  const seq = await letterOf(rig, 'k', 'B');
  const its = new ClaimLog('B', inAnHour());
  const claim = { mailbox: 'w1', key: 'k', bundle: its, hash: 'h', rememberUntil: inAnHour(), isRepeatable: false };
  expect(await other.host.journal.claim(claim)).toEqual({ kind: 'mine' });
  for (const each of [rig, other])
    await expect(each.host.reviveDead(seq)).rejects.toMatchObject({
      code: 'overloaded',
      message: expect.stringContaining('it runs'),
    });
  expect(await idsOf(rig)).toEqual(['k']);
  await other.host.journal.finish('w1', 'k', Buffer.from('{}'), its);
  expect(await rig.host.reviveDead(seq)).toBe(true);
  expect([await idsOf(rig), rig.deliveries]).toEqual([[], []]);
});

test.each(ways)(
  'B10 what a host that is gone had begun, %s, is put back only for who says that it may run again',
  async (_, bundle) => {
    const gone = await startHost({ url: stage.server.url, instance: 'gone' });
    const its = bundle === undefined ? undefined : new ClaimLog(bundle, inAnHour());
    const claim = { mailbox: 'w1', key: 'k', bundle: its, hash: 'h', rememberUntil: inAnHour(), isRepeatable: false };
    expect(await gone.host.journal.claim(claim)).toEqual({ kind: 'mine' });
    await gone.host.close();
    const rig = await host();
    const seq = await letterOf(rig, 'k', bundle, new Date());
    const careful = carefulLetters({
      letters: {
        list: () => rig.host.deadLetters(),
        revive: (which, options) => rig.host.reviveDead(which, options),
        drop: (which) => rig.host.dropDead(which),
      },
      ...{ calls: () => rig.host.deadLetters(), journal: rig.host.journal, clock: systemClock },
    });
    await expect(careful.revive(seq)).rejects.toMatchObject({
      ...{ code: 'outcome_uncertain', details: { execution: 'uncertain' } },
      hint: expect.stringContaining(`letters replay ${seq} --force`),
    });
    expect([await idsOf(rig), rig.deliveries]).toEqual([['k'], []]);
    expect(await careful.revive(seq, { isForced: true })).toBe(true);
    await eventually('it runs', () => rig.ran.length === 1);
    expect(await idsOf(rig)).toEqual([]);
  },
);

test('B10 one of a bundle is not taken for put back because another of its name waits', async () => {
  const rig = await host({ deliver() {} });
  const worker = await startWorker(stage.server.url);
  await worker.link.send(request('k'));
  await eventually('the other', () => rig.deliveries.length === 1);
  const seq = await letterOf(rig, 'k', 'B');
  await expect(rig.host.reviveDead(seq)).rejects.toMatchObject({
    code: 'overloaded',
    message: expect.stringContaining('same id waits'),
  });
  expect(await idsOf(rig)).toEqual(['k']);
  rig.deliveries[0]?.ack();
  await eventually('an empty queue', isEmpty(rig));
  expect(await rig.host.reviveDead(seq)).toBe(true);
  await eventually('it', () => rig.deliveries.length === 2);
  expect([await idsOf(rig), rig.deliveries[1]?.body.toString()]).toEqual([[], '{"id":"k"}']);
  await worker.link.close();
});

test('a bundle with more claims than anybody needs is not read to its end: its calls are uncertain, and over', async () => {
  const before = await host();
  await before.link.close();
  const worker = await startWorker(stage.server.url);
  await Promise.all(['a', 'b'].map((id) => worker.link.send(fresh(id))));
  const claim = JSON.stringify({ instance: 'x', boot: 'f'.repeat(32), number: '1', calls: ['other', 'h'] });
  for (let slot = 0; slot < 300; slot++) client.publish(`hostler.claim.w1.a.${slot}`, claim);
  await client.flush();
  let reads = 0;
  client.subscribe('$JS.API.DIRECT.GET.HOSTLER_CLAIMS_w1.>', { callback: () => void reads++ });
  await client.flush();
  const rig = await host({
    instance: 'next',
    async deliver(delivery, { host: { journal } }) {
      const { id, from, bundle } = delivery;
      const wanted = { mailbox: from.mailbox, key: id, bundle, hash: 'h', rememberUntil: inAnHour() };
      const error = await journal.claim({ ...wanted, isRepeatable: false }).catch((each: unknown) => each);
      expect(error).toMatchObject({ code: 'overloaded', details: { reason: 'claims', execution: 'uncertain' } });
      // As often as it takes to be set aside.
      delivery.release(1, 'too many claims');
    },
  });
  await eventually('both replies', () => ['a', 'b'].every((id) => worker.bodyOf(id)?.includes('"uncertain"')));
  await eventually('an empty queue', isEmpty(rig));
  expect((await idsOf(rig)).sort()).toEqual(['a', 'b']);
  // Each time it is handed out, and once more for what is said at the end.
  expect(reads).toBeLessThanOrEqual(256 * 10);
  await worker.link.close();
});

test('of what nobody can read the beginning is kept, and it is not put back', async () => {
  const rig = await host();
  client.publish('hostler.req.w1.bad', 'x'.repeat(100_000));
  const [letter] = await eventually('the letter', async () => {
    const found = await rig.host.deadLetters();
    return found.length === 1 && found;
  });
  const info = await client.request('$JS.API.STREAM.INFO.HOSTLER_DEAD');
  expect(info.json<{ state: { bytes: number } }>().state.bytes).toBeLessThan(5_000);
  await expect(rig.host.reviveDead(letter?.seq as number)).rejects.toMatchObject({ code: 'invalid_request' });
  expect((await rig.host.deadLetters()).length).toBe(1);
});

test('one worker has its part of the dead letters and no more: what cannot be read is over, and that is told once', async () => {
  const problems: HostError[] = [];
  const rig = await host({
    ...{ mailboxes: ['w1', 'w2'], onProblem: (error) => problems.push(error) },
    deliver: (delivery) => delivery.release(1, 'no'),
  });
  for (let n = 0; n < 300; n++) client.publish(`hostler.req.w1.bad${n}`, 'no head');
  await client.flush();
  await eventually('an empty queue', isEmpty(rig));
  const { length: kept } = await idsOf(rig);
  expect(kept).toBeGreaterThanOrEqual(100);
  // Those on their way while they are counted may be over.
  expect(kept).toBeLessThan(200);
  expect(problems).toMatchObject([{ code: 'insufficient_storage', details: { reason: 'dead_letters_full' } }]);
  const head = JSON.stringify({ sentAtMs: 1, diedAtMs: 2, reasons: [] });
  for (let n = 100; n < 1_000; n++) client.publish(`hostler.dead.w1.k${n}`, `${head}\n60000\n{}`);
  await client.flush();
  const [one, two] = [await stage.worker('w1'), await stage.worker('w2')];
  await eventually('a new count', async () => {
    const id = `more${one.replies.length}`;
    await one.link.send(request(id));
    return (await eventually('its answer', () => one.bodyOf(id))).includes('are full');
  });
  await two.link.send(request('mine'));
  expect(await eventually('its answer', () => two.bodyOf('mine'))).toContain('can put it back');
  expect((await rig.host.deadLetters()).filter(({ mailbox }) => mailbox === 'w2').map(({ id }) => id)).toEqual([
    'mine',
  ]);
  await eventually('an empty queue', isEmpty(rig));
});

test('B10 with no room for dead letters a request is answered all the same, and over', async () => {
  const rig = await host({ deliver: (delivery) => delivery.release(1, 'no') });
  const { config } = (await client.request('$JS.API.STREAM.INFO.HOSTLER_DEAD')).json<{ config: object }>();
  await client.request('$JS.API.STREAM.UPDATE.HOSTLER_DEAD', JSON.stringify({ ...config, max_msgs: 1 }));
  await letterOf(rig, 'first', 'B');
  const worker = await startWorker(stage.server.url);
  await worker.link.send(request('alone'));
  await Promise.all(['a', 'b'].map((id) => worker.link.send(fresh(id))));
  await eventually('all replies', () => worker.replies.length === 3);
  for (const { body } of worker.replies)
    expect(JSON.parse(body)).toMatchObject({
      error: { reason: 'dead_letter', execution: 'not_executed', hint: expect.stringContaining('full') },
    });
  await eventually('an empty queue', isEmpty(rig));
  expect(await idsOf(rig)).toEqual(['first']);
  await worker.link.close();
});
