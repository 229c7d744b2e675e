/** Requests that go together: one message, one claim, one record; and each of them still a call of its own. */
import { type NatsConnection as Client, connect } from '@nats-io/transport-node';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openNatsWorkerLink } from '../../../src/broker/nats/nats-worker-link.js';
import type { Delivery } from '../../../src/broker/ports.js';
import { eventually } from '../../eventually.js';
import {
  fresh,
  ids,
  inAnHour,
  isEmpty,
  NatsStage,
  type RigHost,
  ranOf,
  reopenWorker,
  request,
  sendAll,
  serve,
  startHost,
} from './nats-rig.js';
import { type TcpCut, tcpCut } from './tcp-cut.js';

const stage = new NatsStage();
const { host, worker } = stage;
let client: Client;
const ways: TcpCut[] = [];

const cuttable = async (): Promise<TcpCut> => {
  const way = await tcpCut(stage.server.port);
  ways.push(way);
  return way;
};
/** Messages ever kept there. */
const written = async (stream: 'REQUESTS' | 'CLAIMS' | 'REPLIES'): Promise<number> => {
  const info = await client.request(`$JS.API.STREAM.INFO.HOSTLER_${stream}_w1`);
  return info.json<{ state: { last_seq: number } }>().state.last_seq;
};

beforeEach(async () => {
  await stage.start();
  client = await connect({ servers: stage.server.url, reconnect: false });
});
afterEach(async () => {
  await Promise.all(ways.splice(0).map((way) => way.close()));
  await client.close();
  await stage.stop();
});

describe('what goes together', () => {
  test('requests of one turn are one message, one claim and one record, and each is answered', async () => {
    const rig = await host();
    const w = await worker();
    await sendAll(w, ids(10));
    await eventually('all replies', () => w.replies.length === 10);
    for (const id of ids(10)) expect(w.bodyOf(id)).toBe(ranOf(id));
    expect([await written('REQUESTS'), await written('CLAIMS'), await written('REPLIES')]).toEqual([1, 1, 1]);
    expect(rig.ran).toEqual(ids(10));
    expect(rig.deliveries.every(({ bundle }) => bundle?.id === 'k0')).toBe(true);
    await eventually('empty queues', isEmpty(rig));
  });

  test('one alone, a caller’s own key and what is large go alone', async () => {
    const rig = await host();
    const w = await worker();
    await w.link.send(fresh('lone'));
    const large = 'x'.repeat(150_000);
    await Promise.all([
      w.link.send(request('key-1')),
      w.link.send(request('key-2')),
      w.link.send(fresh('large-1', { large })),
      w.link.send(fresh('large-2', { large })),
    ]);
    await eventually('all replies', () => w.replies.length === 5);
    expect(await written('REQUESTS')).toBe(5);
    expect(rig.deliveries.map(({ bundle }) => bundle)).toEqual([undefined, undefined, undefined, undefined, undefined]);
  });

  test('many of one turn are several messages, and all of them are run once', async () => {
    const rig = await host({ window: 300, laneWindow: 300 });
    const w = await worker();
    const all = ids(300);
    await sendAll(w, all);
    await eventually('all replies', () => w.replies.length === 300);
    expect([...rig.ran].sort()).toEqual([...all].sort());
    const messages = await written('REQUESTS');
    expect(messages).toBeGreaterThanOrEqual(300 / 64);
    expect(messages).toBeLessThan(60);
  });

  test('results that are large have records of their own', async () => {
    const big = { text: 'y'.repeat(120_000) };
    await host({
      async deliver(delivery, rig) {
        const { id, bundle, from } = delivery;
        const claim = { mailbox: from.mailbox, key: id, bundle, hash: 'h', rememberUntil: inAnHour() };
        await rig.host.journal.claim({ ...claim, isRepeatable: false });
        const reply = Buffer.from(JSON.stringify({ id, big: id === 'k3' ? 'z'.repeat(4_000_000) : big }));
        await rig.host.journal.finish(from.mailbox, id, reply, bundle);
        await delivery.answer(reply);
      },
    });
    const w = await worker();
    await sendAll(w, ids(4));
    await eventually('all replies', () => w.replies.length === 4);
    expect(await written('REPLIES')).toBe(3);
    for (const id of ids(4)) expect(JSON.parse(w.bodyOf(id) ?? '').id).toBe(id);
  });

  test('D-44 no more than the window is handed out, and a flood of bundles does not hold up another', async () => {
    const held: (() => void)[] = [];
    let [open, most] = [0, 0];
    const rig = await host({
      ...{ mailboxes: ['w1', 'w2'], window: 8, laneWindow: 32 },
      async run() {
        most = Math.max(most, ++open);
        await new Promise<void>((resolve) => held.push(resolve));
        open--;
      },
    });
    const [loud, quiet] = [await worker('w1'), await worker('w2')];
    await sendAll(loud, ids(640, 'f'));
    await eventually('a full window', () => rig.deliveries.length === 8);
    await quiet.link.send(request('q'));
    const seen = () => rig.deliveries.map(({ id }) => id);
    for (let slots = 0; slots < 3 && !seen().includes('q'); slots++) {
      const before = rig.deliveries.length;
      await eventually('something to end', () => held.length > 0);
      held.shift()?.();
      await eventually('the next', () => rig.deliveries.length > before);
    }
    expect(seen().indexOf('q')).toBeLessThan(8 + 3);
    const goOn = setInterval(() => {
      for (const resolve of held.splice(0)) resolve();
    }, 1);
    await eventually('all of them', () => loud.replies.length === 640 && quiet.replies.length === 1, 30_000);
    clearInterval(goOn);
    expect(most).toBeLessThanOrEqual(8);
    expect(new Set(rig.ran).size).toBe(641);
    expect(rig.ran.length).toBe(641);
  });

  test('D-44 one worker with many bundles has its part of the window and no more, and all of them come in their turn', async () => {
    const held: (() => void)[] = [];
    const rig = await host({
      ...{ mailboxes: ['w1', 'w2'], window: 16, laneWindow: 4 },
      run: () => new Promise<void>((resolve) => held.push(resolve)),
    });
    const [loud, quiet] = [await worker('w1'), await worker('w2')];
    await sendAll(loud, ids(128, 'f'));
    await eventually('its part', () => rig.ran.length >= 4);
    // Nothing ends meanwhile: it is begun only if there is room.
    await quiet.link.send(request('q'));
    await eventually('the quiet one', () => rig.ran.includes('q'));
    expect(rig.deliveries.length).toBe(5);
    const goOn = setInterval(() => {
      for (const resolve of held.splice(0)) resolve();
    }, 1);
    await eventually('all of them', () => loud.replies.length === 128 && quiet.replies.length === 1, 30_000);
    clearInterval(goOn);
    expect(new Set(rig.ran).size).toBe(129);
    await eventually('empty queues', isEmpty(rig));
  });

  test('a slow call holds up nobody who went with it, and its bundle stays ours while it runs', async () => {
    let over = () => {};
    const rig = await host({
      ackWaitMs: 900,
      run: ({ id }) => (id === 'k1' ? new Promise((resolve) => (over = resolve)) : Promise.resolve()),
    });
    const w = await worker();
    await sendAll(w, ids(4));
    await eventually('the fast ones', () => w.replies.length === 3);
    // Three times the wait: only what is extended is still ours.
    await new Promise((resolve) => setTimeout(resolve, 2_700));
    expect(w.bodyOf('k1')).toBeUndefined();
    over();
    await eventually('the slow one', () => w.bodyOf('k1'));
    expect(rig.deliveries.length).toBe(4);
    await eventually('empty queues', isEmpty(rig));
  });

  test('AC-BR11 each has its own end, and each is cancelled by its own id', async () => {
    const before = await host();
    await before.link.close();
    const w = await worker();
    await Promise.all([w.link.send(fresh('dead', {}, 30)), w.link.send(fresh('alive')), w.link.send(fresh('other'))]);
    await new Promise((resolve) => setTimeout(resolve, 60));
    const rig = await host();
    await eventually('all replies', () => w.replies.length === 3);
    expect(rig.ran).toEqual(['alive', 'other']);
    expect(w.bodyOf('dead')).toContain('expired');
    w.link.cancel('alive');
    await eventually('the cancel', () => rig.cancelled.includes('alive'));
    expect(rig.cancelled).toEqual(['alive']);
  });
});

describe('sent again', () => {
  test('B7 after a lost connection the same bundle goes under the same name, and is held once', async () => {
    await (await host()).link.close();
    const way = await cuttable();
    const open = openNatsWorkerLink({ url: way.url, mailbox: 'w1' });
    const first = await reopenWorker(open);
    way.deafen();
    const sending = ids(5).map((id) => first.link.send(fresh(id)));
    await eventually('the message', async () => (await written('REQUESTS')) === 1);
    way.cut();
    for (const each of sending)
      await expect(each).rejects.toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
    const second = await reopenWorker(open);
    stage.workers.push(second);
    // In another order, one at a time, and together with new ones.
    await second.link.send(request('k3'));
    await Promise.all([second.link.send(request('k4')), ...['n1', 'n2'].map((id) => second.link.send(fresh(id)))]);
    await Promise.all(['k0', 'k1', 'k2'].map((id) => second.link.send(request(id))));
    expect(await written('REQUESTS')).toBe(2);
    const rig = await host();
    await eventually('all replies', () => second.replies.length === 7);
    expect([...rig.ran].sort()).toEqual([...ids(5), 'n1', 'n2'].sort());
  });

  test('all of a bundle reads as it is sent then, whoever of it is sent again, but for what nobody waits for', async () => {
    await (await host()).link.close();
    const way = await cuttable();
    const open = openNatsWorkerLink({ url: way.url, mailbox: 'w1' });
    const first = await reopenWorker(open);
    const again = (id: string) => (id === 'k2' ? undefined : request(id, { id, isAgain: true }, 4_501));
    await Promise.all(ids(5).map((id) => first.link.send({ ...fresh(id), again: () => again(id) })));
    // As if it had never been held.
    await client.request('$JS.API.STREAM.PURGE.HOSTLER_REQUESTS_w1');
    way.cut();
    await first.link.closed;
    const second = await reopenWorker(open);
    stage.workers.push(second);
    await second.link.send(request('k3'));
    const rig = await host();
    await eventually('all of it', () => rig.deliveries.length === 4);
    const wanted = ['k0', 'k1', 'k3', 'k4'];
    expect(rig.deliveries.map(({ id, bundle }) => [id, bundle?.id])).toEqual(wanted.map((id) => [id, 'k0']));
    expect(rig.deliveries.map(({ body }) => JSON.parse(body.toString()))).toEqual(
      wanted.map((id) => ({ id, isAgain: true })),
    );
    for (const { deadlineAt, sentAt } of rig.deliveries)
      expect(Number(deadlineAt?.getTime()) - Number(sentAt?.getTime())).toBe(4_501);
  });

  test('D-40 what ran meanwhile is answered from the journal, all of it, and run once', async () => {
    const rig = await host();
    const way = await cuttable();
    const open = openNatsWorkerLink({ url: way.url, mailbox: 'w1' });
    const first = await reopenWorker(open);
    way.deafen();
    const sending = ids(6).map((id) => first.link.send(fresh(id)));
    for (const each of sending) each.catch(() => {});
    await eventually('all of them to be over', async () => rig.ran.length === 6 && (await isEmpty(rig)()));
    way.cut();
    await Promise.allSettled(sending);
    const second = await reopenWorker(open);
    stage.workers.push(second);
    await Promise.all(ids(6).map((id) => second.link.send(request(id))));
    await eventually('all replies', () => ids(6).every((id) => second.bodyOf(id) === ranOf(id)));
    await eventually('empty queues', isEmpty(rig));
    expect(rig.ran).toEqual(ids(6));
    expect(rig.claims.filter(({ kind }) => kind === 'mine').length).toBe(6);
  });

  test('one that surely was not held is fresh again, and may go with others', async () => {
    const rig = await host({ requestsMax: 1, deliver() {} });
    const w = await worker();
    await w.link.send(request('full'));
    const refused = await Promise.allSettled(ids(3).map((id) => w.link.send(fresh(id))));
    for (const each of refused)
      expect(each).toMatchObject({ reason: { code: 'overloaded', details: { execution: 'not_executed' } } });
    await eventually('it to be here', () => rig.deliveries.length === 1);
    rig.deliveries[0]?.ack();
    await eventually('room', isEmpty(rig));
    await sendAll(w, ['k2', 'k1']);
    await eventually('the bundle', () => rig.deliveries.length === 3);
    expect(rig.deliveries.slice(1).map(({ bundle }) => bundle?.id)).toEqual(['k2', 'k2']);
  });
});

describe('given back', () => {
  test('AC-BR4 what a host had not begun when it closed is run by the next one, and what it had run is not', async () => {
    const first: RigHost = await host({
      instance: 'first',
      // Half of it is run; the rest waits, as in a full desk.
      deliver: (delivery, rig) => {
        if (Number(delivery.id.slice(1)) % 2 === 0) void serve(delivery, rig, undefined, false);
      },
    });
    const w = await worker();
    await sendAll(w, ids(10));
    await eventually('half of the replies', () => w.replies.length === 5);
    await first.host.close();
    const second = await host({ instance: 'second' });
    await eventually('the other half', () => ids(10).every((id) => w.bodyOf(id) === ranOf(id)));
    expect(first.ran).toEqual(['k0', 'k2', 'k4', 'k6', 'k8']);
    expect(second.ran).toEqual(['k1', 'k3', 'k5', 'k7', 'k9']);
    await eventually('empty queues', isEmpty(second));
  });

  test('a call that is given back comes again while another of its bundle still runs, which is not run twice', async () => {
    let over = () => {};
    const rig = await host({
      ackWaitMs: 1_000,
      deliver: (delivery, its) => {
        if (delivery.id === 'k0' && delivery.deliveries === 1) delivery.release(1, 'not now');
        else if (delivery.id !== 'k1' || delivery.deliveries === 1)
          void serve(delivery, its, ({ id }) => (id === 'k1' ? slow : Promise.resolve()), false);
        // As the service does with what is under way here: its outcome goes to the newest.
        else void slow.then(() => delivery.answer(ranOf('k1')));
      },
    });
    const slow = new Promise<void>((resolve) => (over = resolve));
    const w = await worker();
    await sendAll(w, ids(3));
    await eventually('the one given back', () => w.bodyOf('k0') === ranOf('k0'));
    expect(w.bodyOf('k1')).toBeUndefined();
    over();
    await eventually('the slow one', () => w.bodyOf('k1'));
    await eventually('empty queues', isEmpty(rig));
    expect([...rig.ran].sort()).toEqual(ids(3));
  });

  test('B10 after five deliveries each is set aside with its reasons, answered, and put back by its own', async () => {
    const rig = await host({ deliver: (delivery) => delivery.release(1, `${delivery.id} at ${delivery.deliveries}`) });
    const w = await worker();
    await sendAll(w, ids(3));
    await eventually('all replies', () => ids(3).every((id) => w.bodyOf(id)?.includes('"dead_letter"')));
    const letters = await eventually('the letters', async () => {
      const found = await rig.host.deadLetters();
      return found.length === 3 && found;
    });
    expect(letters.map(({ id }) => id).sort()).toEqual(ids(3));
    for (const { id, reasons } of letters) expect(reasons).toEqual([1, 2, 3, 4, 5].map((n) => `${id} at ${n}`));
    await eventually('empty queues', isEmpty(rig));
    await rig.host.close();
    const healed = await host({ instance: 'h2' });
    const seq = letters.find(({ id }) => id === 'k1')?.seq as number;
    const asked = await Promise.allSettled([healed.host.reviveDead(seq), healed.host.reviveDead(seq)]);
    expect(asked).toContainEqual({ status: 'fulfilled', value: true });
    for (const each of asked)
      if (each.status === 'rejected') expect(each.reason).toMatchObject({ details: { execution: 'not_executed' } });
    await eventually('the result', () => w.replies.some(({ body }) => body === ranOf('k1')));
    await eventually('empty queues', isEmpty(healed));
    expect(healed.ran).toEqual(['k1']);
    expect((await healed.host.deadLetters()).map(({ id }) => id).sort()).toEqual(['k0', 'k2']);
  });

  test('a mailbox that is taken out of the table keeps what was not begun', async () => {
    const rig = await host({ window: 4, deliver() {} });
    const w = await worker();
    await sendAll(w, ids(10));
    await eventually('a full window', () => rig.deliveries.length === 4);
    await rig.host.replaceCredentials(new Map());
    for (const delivery of rig.deliveries) await serve(delivery, rig, undefined, false);
    await rig.host.close();
    const later = await host({ instance: 'later' });
    await eventually('all replies', () => ids(10).every((id) => w.bodyOf(id) === ranOf(id)));
    expect(later.ran).toEqual(ids(10).slice(4));
  });
});

describe('a host that dies', () => {
  const dying = async (run: (delivery: Delivery) => Promise<void>, isRepeatable: boolean) => {
    const way = await cuttable();
    const rig = await startHost({ url: way.url, instance: 'dying', ackWaitMs: 1_500, isRepeatable, run });
    return { rig, way };
  };
  const stuckOnOdd = ({ id }: Delivery) =>
    Number(id.slice(1)) % 2 === 1 ? new Promise<void>(() => {}) : Promise.resolve();

  test('D-40 over a bundle: what has a record is answered, the rest is uncertain, nothing runs again', async () => {
    const { rig, way } = await dying(stuckOnOdd, false);
    const w = await worker();
    await sendAll(w, ids(8));
    await eventually('all of them to run', () => rig.ran.length === 8);
    await eventually('half of the replies', () => w.replies.length === 4);
    await way.close();
    ways.pop();
    const others = [await host({ instance: 'b', ackWaitMs: 1_500 }), await host({ instance: 'c', ackWaitMs: 1_500 })];
    await eventually('all replies', () => new Set(w.replies.map(({ id }) => id)).size === 8, 30_000);
    for (const id of ids(8)) expect(w.bodyOf(id)).toBe(Number(id.slice(1)) % 2 === 1 ? '{"lost":true}' : ranOf(id));
    expect(others.flatMap(({ ran }) => ran)).toEqual([]);
    await eventually('empty queues', isEmpty(others[0] as RigHost));
  });

  test('D-40 what may be repeated is taken by one of the others, and only what had no record', async () => {
    const { rig, way } = await dying(stuckOnOdd, true);
    const w = await worker();
    await sendAll(w, ids(8));
    await eventually('half of the replies', () => w.replies.length === 4);
    await way.close();
    ways.pop();
    expect(rig.ran.length).toBe(8);
    const others = [
      await host({ instance: 'b', ackWaitMs: 1_500, isRepeatable: true }),
      await host({ instance: 'c', ackWaitMs: 1_500, isRepeatable: true }),
    ];
    await eventually('all replies', () => ids(8).every((id) => w.bodyOf(id) === ranOf(id)), 30_000);
    expect(others.flatMap(({ ran }) => ran).sort()).toEqual(['k1', 'k3', 'k5', 'k7']);
  });

  test('D-40 what was refused is not begun when its bundle comes again for the sake of others', async () => {
    const way = await cuttable();
    const refusing = await startHost({
      ...{ url: way.url, instance: 'refusing', ackWaitMs: 1_500 },
      deliver: (delivery) => {
        if (delivery.id !== 'k2') void delivery.answer('{"refused":true}');
      },
    });
    const w = await worker();
    await sendAll(w, ids(4));
    await eventually('the refusals', () => w.replies.length === 3);
    expect(refusing.deliveries.length).toBe(4);
    await way.close();
    ways.pop();
    const next = await host({ instance: 'next', ackWaitMs: 1_500 });
    await eventually('the rest', () => w.bodyOf('k2') === ranOf('k2'), 30_000);
    await eventually('empty queues', isEmpty(next));
    expect(next.ran).toEqual(['k2']);
    for (const id of ['k0', 'k1', 'k3']) expect(w.bodyOf(id)).toBe('{"refused":true}');
  });

  test('AC-BR4 over kills of the server under load nothing that was held is lost, and nothing is run twice', async () => {
    const ran: string[] = [];
    const open = (instance: string): Promise<RigHost> =>
      eventually('a host', () =>
        startHost({
          url: stage.server.url,
          instance,
          ackWaitMs: 1_000,
          run: async ({ id }) => void ran.push(id),
        }).catch(() => undefined),
      );
    const link = openNatsWorkerLink({ url: stage.server.url, mailbox: 'w1' });
    let w = await reopenWorker(link);
    stage.hosts.push(await open('a'));
    const rigs = [w];
    const held: string[] = [];
    const isReplied = (id: string) => rigs.some((rig) => rig.bodyOf(id) !== undefined);
    for (let kill = 0; kill < 5; kill++) {
      const wanted = ids(40, `k${kill}-`);
      const sending = wanted.map((id) => w.link.send(fresh(id)).then(() => held.push(id)));
      await Promise.race(sending);
      await stage.server.kill();
      await Promise.allSettled(sending);
      await stage.server.start();
      const [before] = stage.hosts.splice(0);
      await before?.host.close();
      stage.hosts.push(await open(`h${kill}`));
      w = await eventually('a worker', () => reopenWorker(link).catch(() => undefined));
      rigs.push(w);
      // As an executor does: the same keys until there is an answer, and not after it.
      await Promise.all(wanted.filter((id) => !isReplied(id)).map((id) => w.link.send(request(id))));
      held.push(...wanted);
    }
    stage.workers.push(w);
    await eventually('every reply', () => held.every(isReplied));
    expect(new Set(ran).size).toBe(ran.length);
  });
});

test('bundles that nobody can read are set aside, and the next is served', async () => {
  const rig = await host();
  const w = await worker();
  const bad = [
    '*',
    '*\n',
    '*a 2 1000,a 2 1000\n{}{}',
    '*a 9 1000\n{}',
    '*a.b 2 1000\n{}',
    `*${'k 2 1,'.repeat(200)}\n`,
  ];
  for (const [n, payload] of bad.entries()) client.publish(`hostler.req.w1.bad${n}`, payload);
  client.publish('hostler.req.w1.ünfit', '*a 2 1000\n{}');
  client.publish('hostler.req.w1.torn', '*good-1 2 60000,torn 3 60000,good-2 2 60000\n{}{"a{}');
  await client.flush();
  await sendAll(w, ['x', 'y']);
  await eventually('the replies', () => ['x', 'y', 'good-1', 'good-2'].every((id) => w.bodyOf(id)));
  await eventually('the refusal', () => w.bodyOf('torn')?.includes('"invalid_request"'));
  await eventually('empty queues', isEmpty(rig));
  expect(rig.ran.sort()).toEqual(['good-1', 'good-2', 'x', 'y']);
  expect((await rig.host.deadLetters()).length).toBe(bad.length + 1);
});
