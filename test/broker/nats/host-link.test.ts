/** How requests come to a host, and what it does with those that nobody should run. */
import { connect } from '@nats-io/transport-node';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { isEmpty, NatsStage, request } from './nats-rig.js';
import { tcpCut } from './tcp-cut.js';

const stage = new NatsStage();
const { host, worker } = stage;

beforeEach(stage.start);
afterEach(stage.stop);

describe('fairness and bounds', () => {
  test('D-44 a flood of 5,000 requests of one worker does not hold up another', async () => {
    const held: (() => void)[] = [];
    const rig = await host({
      mailboxes: ['w1', 'w2'],
      window: 16,
      laneWindow: 32,
      run: () => new Promise((resolve) => held.push(resolve)),
    });
    const [loud, quiet] = [await worker('w1'), await worker('w2')];
    await Promise.all(Array.from({ length: 5_000 }, (_, n) => loud.link.send(request(`f${n}`))));
    await eventually('a full window', () => rig.deliveries.length === 16);
    await quiet.link.send(request('q'));
    // One slot becomes free at a time: the quiet one has the next or the one after.
    const handedOut = () => rig.deliveries.map(({ id }) => id);
    for (let slots = 0; slots < 3 && !handedOut().includes('q'); slots++) {
      const before = rig.deliveries.length;
      await eventually('something to end', () => held.length > 0);
      held.shift()?.();
      await eventually('the next', () => rig.deliveries.length > before);
    }
    expect(handedOut().indexOf('q')).toBeGreaterThan(0);
    expect(handedOut().indexOf('q')).toBeLessThan(16 + 3);
  });

  test('D-44 no more than the window is handed out, and everything comes in its turn', async () => {
    let most = 0;
    let open = 0;
    const rig = await host({
      mailboxes: ['w1', 'w2'],
      window: 8,
      async run() {
        most = Math.max(most, ++open);
        await new Promise((resolve) => setImmediate(resolve));
        open--;
      },
    });
    const [a, b] = [await worker('w1'), await worker('w2')];
    const ids = Array.from({ length: 200 }, (_, n) => `n${n}`);
    await Promise.all(ids.flatMap((id) => [a.link.send(request(id)), b.link.send(request(id))]));
    await eventually('all replies', () => a.replies.length === 200 && b.replies.length === 200);
    expect(most).toBeLessThanOrEqual(8);
    expect(rig.ran.length).toBe(400);
    await eventually('empty queues', isEmpty(rig));
  });

  test('AC-BR7 the full mailbox of one worker is nobody else’s', async () => {
    await host({ mailboxes: ['w1', 'w2'], requestsMax: 2, deliver() {} });
    const [full, other] = [await worker('w1'), await worker('w2')];
    await full.link.send(request('a'));
    await full.link.send(request('b'));
    await expect(full.link.send(request('c'))).rejects.toMatchObject({ code: 'overloaded' });
    await full.link.send(request('a'));
    await other.link.send(request('c'));
  });

  test('a call that takes longer than the wait for its word is not handed out twice', async () => {
    let over = () => {};
    const rig = await host({ ackWaitMs: 900, run: () => new Promise((resolve) => (over = resolve)) });
    const w = await worker();
    await w.link.send(request('long'));
    await eventually('it to run', () => rig.ran.length === 1);
    // Three times the wait: only what is extended is still ours.
    await new Promise((resolve) => setTimeout(resolve, 2_700));
    over();
    await eventually('the reply', () => w.bodyOf('long'));
    expect(rig.deliveries.length).toBe(1);
  });
});

describe('what should not run', () => {
  test('D-42 a request that its worker gave up waiting for is handed out with the end in the past', async () => {
    const rig = await host();
    await rig.link.close();
    const w = await worker();
    await w.link.send(request('dead', {}, 30));
    await new Promise((resolve) => setTimeout(resolve, 60));
    const later = await host();
    await eventually('the reply', () => w.bodyOf('dead') === '{"v":1,"error":{"code":"expired"}}');
    expect(later.ran).toEqual([]);
    expect(later.deliveries[0]?.deadlineAt?.getTime()).toBeLessThan(Date.now());
  });

  test('what is no request is set aside, what is no JSON is answered, and the next is served', async () => {
    const rig = await host();
    const w = await worker();
    const client = await connect({ servers: stage.server.url });
    for (const payload of ['', '{}', 'x\n{}', '\n{}', '99999999999\n{}', '-1\n{}'])
      client.publish(`hostler.req.w1.bad${Buffer.from(payload).toString('hex')}`, payload);
    client.publish('hostler.req.w1.torn', '60000\n{"a":');
    client.publish('hostler.req.w1.ünfit', '60000\n{}');
    await client.flush();
    await w.link.send(request('good'));
    await eventually('the reply', () => w.bodyOf('good'));
    await eventually('the refusal', () => w.bodyOf('torn')?.includes('"invalid_request"'));
    await eventually('empty queues', isEmpty(rig));
    expect(rig.deliveries.map(({ id }) => id)).toEqual(['good']);
    expect((await rig.host.deadLetters()).length).toBe(7);
    await client.close();
  });

  test('AC-BR13 a mailbox whose time is over, or that is in no table, is not served', async () => {
    const soon = new Date(Date.now() + 3_600_000);
    const rig = await host({ credentials: new Map([['w1', { role: 'a', expiresAt: soon }]]) });
    const w = await worker();
    await w.link.send(request('before'));
    await eventually('the reply', () => w.bodyOf('before'));
    await rig.host.replaceCredentials(new Map([['w1', { role: 'a', expiresAt: new Date(Date.now() - 1) }]]));
    await w.link.send(request('after'));
    await rig.host.replaceCredentials(new Map([['w2', { role: 'b' }]]));
    const other = await worker('w2');
    await other.link.send(request('other'));
    await eventually('the reply', () => other.bodyOf('other'));
    expect(rig.deliveries.map(({ id }) => id)).toEqual(['before', 'other']);
    // It was kept: with its mailbox back in the table it is served, under the role it has then.
    await rig.host.replaceCredentials(new Map([['w1', { role: 'c' }]]));
    await eventually('the reply', () => w.bodyOf('after'));
    expect(rig.deliveries.at(-1)?.from).toEqual({ mailbox: 'w1', role: 'c' });
  });

  test('B10 after five deliveries a request is set aside with its reasons, and its worker hears of it', async () => {
    const rig = await host({ deliver: (delivery) => delivery.release(1, `reason ${delivery.deliveries}`) });
    const w = await worker();
    await w.link.send(request('poison', { tool: 'x' }));
    const body = await eventually('the reply', () => w.bodyOf('poison'));
    expect(JSON.parse(body)).toMatchObject({
      v: 1,
      error: { code: 'overloaded', reason: 'dead_letter', execution: 'not_executed' },
    });
    expect(rig.deliveries.map(({ deliveries }) => deliveries)).toEqual([1, 2, 3, 4, 5]);
    const [letter, ...rest] = await rig.host.deadLetters();
    expect(rest).toEqual([]);
    expect(letter).toMatchObject({ mailbox: 'w1', id: 'poison', reasons: [1, 2, 3, 4, 5].map((n) => `reason ${n}`) });
    await eventually('empty queues', isEmpty(rig));
  });

  test('B10 an operator puts it back, and it is run once however often that is asked for', async () => {
    const rig = await host({ deliver: (delivery) => delivery.release(1, 'no') });
    const w = await worker();
    await w.link.send(request('poison'));
    await eventually('the reply', () => w.bodyOf('poison'));
    const seq = (await rig.host.deadLetters())[0]?.seq as number;
    await rig.host.close();
    const healed = await host({ instance: 'h2' });
    const asked = await Promise.all([healed.host.reviveDead(seq), healed.host.reviveDead(seq)]);
    expect(asked).toContain(true);
    await eventually('the result', () => w.replies.some(({ body }) => body === '{"ran":{"id":"poison"}}'));
    await eventually('empty queues', isEmpty(healed));
    expect(await healed.host.reviveDead(seq)).toBe(false);
    expect(healed.ran).toEqual(['poison']);
    expect(await healed.host.deadLetters()).toEqual([]);
  });
});

describe('around it', () => {
  test('a result is written once: as the record of its call and as the reply', async () => {
    const rig = await host();
    const w = await worker();
    await w.link.send(request('a'));
    await eventually('the reply', () => w.bodyOf('a'));
    const client = await connect({ servers: stage.server.url });
    const info = await client.request('$JS.API.STREAM.INFO.HOSTLER_REPLIES_w1');
    expect(info.json<{ state: { messages: number } }>().state.messages).toBe(1);
    expect(w.replies.length).toBe(1);
    await client.close();
    await eventually('empty queues', isEmpty(rig));
  });

  test('AC-BR11 a reply that was taken is acknowledged, whether anybody waited for it or not', async () => {
    await host();
    const w = await worker();
    await Promise.all(['a', 'b', 'c'].map((id) => w.link.send(request(id))));
    await eventually('the replies', () => w.replies.length === 3);
    const client = await connect({ servers: stage.server.url });
    await eventually('nothing owed', async () => {
      const info = await client.request('$JS.API.CONSUMER.INFO.HOSTLER_REPLIES_w1.worker');
      const { num_ack_pending, ack_floor } = info.json<{
        num_ack_pending: number;
        ack_floor: { stream_seq: number };
      }>();
      return num_ack_pending === 0 && ack_floor.stream_seq === 3;
    });
    expect(w.replies.length).toBe(3);
    await client.close();
  });

  test('a reply that is too large is refused to its host, and the link goes on', async () => {
    const refusals: unknown[] = [];
    const big = Buffer.alloc(4 * 1024 * 1024 + 1, 0x20);
    await host({
      deliver(delivery) {
        delivery
          .reply(delivery.id === 'big' ? big : '{}')
          .catch((error) => refusals.push(error))
          .finally(delivery.ack);
      },
    });
    const w = await worker();
    await w.link.send(request('big'));
    await w.link.send(request('small'));
    await eventually('the reply', () => w.bodyOf('small'));
    expect(refusals).toMatchObject([{ code: 'result_too_large' }]);
    await expect(w.link.send({ id: 'huge', body: big, ttlMs: 1_000 })).rejects.toMatchObject({
      details: { execution: 'not_executed' },
    });
  });

  test('a manifest is each role’s own, and changes with the table', async () => {
    const rig = await host({
      credentials: new Map([
        ['w1', { role: 'a' }],
        ['w2', { role: 'b' }],
      ]),
    });
    const [one, two] = [await worker('w1'), await worker('w2')];
    await rig.link.keepManifest?.('a', Buffer.from('"A"'));
    expect((await one.link.readManifest?.())?.toString()).toBe('"A"');
    expect(await two.link.readManifest?.()).toBeUndefined();
    await rig.link.keepManifest?.('b', Buffer.from('"B"'));
    await rig.host.replaceCredentials(
      new Map([
        ['w1', { role: 'b' }],
        ['w2', { role: 'c' }],
      ]),
    );
    expect((await one.link.readManifest?.())?.toString()).toBe('"B"');
    expect(await two.link.readManifest?.()).toBeUndefined();
  });

  test('a second connection with a mailbox has it, and the first is told why it ends', async () => {
    const rig = await host();
    const first = await worker();
    const second = await worker();
    expect(await first.link.closed).toMatchObject({ code: 'transport', details: { reason: 'replaced' } });
    await second.link.send(request('a'));
    await eventually('the reply', () => second.bodyOf('a'));
    expect(rig.ran).toEqual(['a']);
  });

  test('a worker whose mailbox no host ever had is told so, and that nothing is held', async () => {
    const w = await worker('nobody');
    await expect(w.link.send(request('a'))).rejects.toMatchObject({
      details: { reason: 'no_stream', execution: 'not_executed' },
    });
    expect(await w.link.readManifest?.()).toBeUndefined();
  });

  test('a stream taken away under a host ends its link, and the next one makes it anew', async () => {
    const rig = await host();
    const w = await worker();
    const client = await connect({ servers: stage.server.url });
    await client.request('$JS.API.STREAM.DELETE.HOSTLER_REQUESTS_w1');
    await client.close();
    expect(await rig.link.closed).toMatchObject({ code: 'transport' });
    await rig.reopen();
    await w.link.send(request('a'));
    await eventually('the reply', () => w.bodyOf('a'));
  });

  /** A host whose connection is being closed, because a queue was taken away under it. */
  const closing = async () => {
    const way = await tcpCut(stage.server.port);
    const rig = await host({ url: way.url });
    const client = await connect({ servers: stage.server.url });
    client.publish('$JS.API.CONSUMER.DELETE.HOSTLER_REQUESTS_w1.hosts');
    await rig.link.closed;
    const end = () => Promise.all([client.close(), way.close()]);
    return { way, rig, journal: rig.host.journal, end };
  };

  test('whoever needs a connection while one is being closed shares the next, which ends with the host', async () => {
    const { way, rig, journal, end } = await closing();
    const found = await Promise.all(Array.from({ length: 20 }, (_, n) => journal.find('w1', `k${n}`)));
    expect(found.every((each) => each === undefined)).toBe(true);
    expect(way.count().made).toBe(2);
    await rig.host.close();
    await eventually('no connection', () => way.count().open === 0);
    await end();
  });

  test('a host that is closed opens no connection any more, whoever waits for one', async () => {
    const { way, rig, journal, end } = await closing();
    const finding = journal.find('w1', 'k');
    await Promise.all([rig.host.close(), expect(finding).rejects.toMatchObject({ code: 'transport' })]);
    expect(way.count().made).toBe(1);
    await end();
  });
});
