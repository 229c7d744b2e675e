/** Calls of a bundle that are answered without being run, and what keeps them from running afterwards. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ClaimLog } from '../../../src/broker/nats/nats-claim-log.js';
import type { Delivery } from '../../../src/broker/ports.js';
import { eventually } from '../../eventually.js';
import { ids, inAnHour, isEmpty, NatsStage, ranOf, sendAll } from './nats-rig.js';

const stage = new NatsStage();
const { host, worker } = stage;

beforeEach(stage.start);
afterEach(stage.stop);

test('D-40 what somebody has claimed is not refused: it is given back, and its worker hears what became of it', async () => {
  const rig = await host({ deliver() {} });
  const other = await host({ instance: 'other', mailboxes: [] });
  const w = await worker();
  await sendAll(w, ids(2));
  await eventually('both', () => rig.deliveries.length === 2);
  const [here, there] = rig.deliveries as [Delivery, Delivery];
  const claimOf = ({ id, from, bundle }: Delivery) => ({
    ...{ mailbox: from.mailbox, key: id, bundle, hash: 'h', rememberUntil: inAnHour(), isRepeatable: false },
  });
  expect(await rig.host.journal.claim(claimOf(here))).toEqual({ kind: 'mine' });
  const its = new ClaimLog(there.bundle?.id ?? '', inAnHour());
  expect(await other.host.journal.claim({ ...claimOf(there), bundle: its })).toEqual({ kind: 'mine' });
  // Known by now to whoever refuses it, from what others of the bundle read.
  expect(await rig.host.journal.find('w1', there.id, { bundle: there.bundle })).toEqual({ kind: 'elsewhere' });
  for (const delivery of [here, there])
    await expect(delivery.refuse('{"refused":true}')).rejects.toMatchObject({ code: 'transport' });
  await rig.host.journal.finish('w1', here.id, Buffer.from('"ran"'), here.bundle);
  await here.answer('"ran"');
  await other.host.journal.finish('w1', there.id, Buffer.from('"ran there"'), its);
  await eventually('the replies', () => w.replies.length === 2);
  expect(ids(2).map((id) => w.bodyOf(id))).toEqual(['"ran"', '"ran there"']);
});

test('AC-BR11 where the journal is full what is refused is answered too, and is not said to be over for good', async () => {
  const rig = await host({ claimsMax: 1, deliver() {} });
  const w = await worker();
  await sendAll(w, ids(4));
  await eventually('all of them', () => rig.deliveries.length === 4);
  const [first, ...rest] = rig.deliveries as [Delivery, ...Delivery[]];
  await first.refuse('{"refused":true}');
  await rest[0]?.refuse('{"refused":true}');
  await rest[1]?.answer('{"lost":true}');
  await rest[2]?.answer('{"lost":true}');
  await eventually('all replies', () => w.replies.length === 4);
  expect(w.bodyOf('k0')).toBe('{"refused":true}');
  expect(JSON.parse(w.bodyOf('k1') ?? '')).toMatchObject({
    error: { code: 'insufficient_storage', execution: 'uncertain' },
  });
  expect([w.bodyOf('k2'), w.bodyOf('k3')]).toEqual(['{"lost":true}', '{"lost":true}']);
  await eventually('empty queues', isEmpty(rig));
});

test('D-40 one that is answered when it came again is answered at once, though its claims were not read yet', async () => {
  const answers: Promise<void>[] = [];
  const rig = await host({
    async deliver(delivery, { host: { journal } }) {
      const { id, from, bundle, deliveries } = delivery;
      if (deliveries > 1) return void answers.push(delivery.answer(ranOf(id)));
      const claim = { mailbox: from.mailbox, key: id, bundle, hash: 'h', rememberUntil: inAnHour() };
      await journal.claim({ ...claim, isRepeatable: false });
      await journal.finish(from.mailbox, id, Buffer.from(ranOf(id)), bundle);
      delivery.release(1, 'its reply was not kept');
    },
  });
  const w = await worker();
  await sendAll(w, ids(2));
  await eventually('both again', () => answers.length === 2);
  await Promise.all(answers);
  await eventually('empty queues', isEmpty(rig));
  expect(rig.deliveries.map(({ deliveries }) => deliveries)).toEqual([1, 1, 2, 2]);
  for (const id of ids(2)) expect(w.bodyOf(id)).toBe(ranOf(id));
});
