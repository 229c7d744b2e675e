/** What every engine promises to those who use `broker/ports.ts`. */
import { afterEach, describe, expect, test } from 'vitest';
import type { Delivery } from '../../../src/broker/ports.js';
import { eventually } from '../../eventually.js';
import { echo, never, TestHost, TestWorker } from './ends.js';
import { type Bench, type BenchOptions, engines } from './engines.js';

for (const { name, open, deliveriesMax, acksOutliveKill } of engines) {
  describe(name, () => {
    let bench: Bench | undefined;
    const up = async (options?: BenchOptions): Promise<Bench> => {
      bench = await open(options);
      return bench;
    };
    afterEach(async () => {
      await bench?.close();
      bench = undefined;
    });

    test('AC-BR1 a request comes with its sender, and its reply goes back as the bytes it was', async () => {
      const at = await up();
      const host = await TestHost.open(at, echo);
      const alice = await TestWorker.open(at, 'alice');
      const body = Buffer.from('{"text":"naïve 日本語 😀","n":1.0,"big":18446744073709551615}');
      await alice.link.send({ id: 'one', body, ttlMs: 20_000 });
      expect(await alice.reply('one')).toBe(`{"echo":${body.toString()}}`);
      const delivery = await host.next(1);
      expect(delivery.body.toString()).toBe(body.toString());
      expect(delivery.from.mailbox).toBe('alice');
      if (at.stampsRoles) expect(delivery.from.role).toBe('researcher');
      expect(delivery.deliveries).toBe(1);
      expect(delivery.deadlineAt?.getTime()).toBeGreaterThan(Date.now());
      expect(delivery.deadlineAt?.getTime()).toBeLessThan(Date.now() + 21_000);
      await eventually('an empty mailbox', async () => (await at.depth()) === 0);
    });

    test('AC-BR2 what is sent while the host is away arrives when it comes, in order', async () => {
      const at = await up();
      const alice = await TestWorker.open(at, 'alice');
      for (const id of ['a', 'b', 'c']) await alice.send(id);
      const host = await TestHost.open(at, echo);
      await host.next(3);
      expect(host.ids()).toEqual(['a', 'b', 'c']);
      await alice.reply('c');
    });

    test('AC-BR2 a reply to a worker that is away arrives when it comes back', async () => {
      const at = await up();
      const host = await TestHost.open(at);
      const first = await TestWorker.open(at, 'alice');
      await first.send('a');
      const delivery = await host.next(1);
      await first.link.close();
      await delivery.reply('{"late":true}');
      delivery.ack();
      const second = await TestWorker.open(at, 'alice');
      expect(await second.reply('a')).toBe('{"late":true}');
    });

    test('AC-BR3 a key that nobody has is refused for good, and says nothing', async () => {
      const at = await up();
      const failure = await at.openStranger({ replied() {}, told() {} }, never).catch((error: unknown) => error);
      expect(failure).toMatchObject({ code: 'unauthenticated', retryable: false });
      expect(JSON.stringify(failure)).not.toContain('nobody-key');
    });

    test('AC-BR4 after a restart what was not acknowledged comes again, and what was does not', async () => {
      const at = await up();
      const before = await TestHost.open(at, ({ id, ack }) => {
        if (id === 'done') ack();
      });
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('done');
      await alice.send('owed');
      await before.next(2);
      await eventually('one left', async () => (await at.depth()) === 1);
      await at.restart();
      await before.link.closed;
      const after = await TestHost.open(at, echo);
      const again = await eventually('what is owed', () => after.deliveries.find(({ id }) => id === 'owed'));
      const back = await TestWorker.open(at, 'alice');
      await back.reply('owed');
      if (!acksOutliveKill) return;
      expect(again.deliveries).toBe(2);
      expect(after.ids()).toEqual(['owed']);
    });

    test('AC-BR4 what a host held when its link was lost comes to the next one', async () => {
      const at = await up();
      const first = await TestHost.open(at);
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('a');
      expect(await first.next(1)).toMatchObject({ deliveries: 1, wasElsewhere: false });
      await first.link.close();
      const second = await TestHost.open(at, echo);
      expect(await second.next(1)).toMatchObject({ id: 'a', deliveries: 2, wasElsewhere: true });
      await alice.reply('a');
    });

    test('D-40 what a host refused is over when its worker hears so, and comes to nobody again', async () => {
      const at = await up();
      const first = await TestHost.open(at, ({ refuse }) => void refuse('{"error":{}}'));
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('a');
      expect(await alice.reply('a')).toBe('{"error":{}}');
      expect(await at.depth()).toBe(0);
      await first.link.close();
      const second = await TestHost.open(at, echo);
      await alice.send('b');
      await alice.reply('b');
      expect([first.ids(), second.ids()]).toEqual([['a'], ['b']]);
    });

    test('D-40 what a host gave back it does not refuse any more', async () => {
      const at = await up();
      const host = await TestHost.open(at);
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('a');
      const delivery = await host.next(1);
      delivery.release(0, 'not now');
      await expect(delivery.refuse('{"error":{}}')).rejects.toMatchObject({ details: { reason: 'not_owed' } });
      echo(await host.next(2));
      expect(await alice.reply('a')).toContain('echo');
    });

    test('AC-BR7 a full mailbox refuses who sends, by the id of the message, and nobody else', async () => {
      const at = await up({ mailboxMessages: 3 });
      const alice = await TestWorker.open(at, 'alice');
      for (const id of ['a', 'b', 'c']) await alice.send(id);
      const refused = await alice.send('d').catch((error: unknown) => error);
      expect(refused).toMatchObject({
        code: 'overloaded',
        details: { reason: 'mailbox_full', execution: 'not_executed' },
        retryable: true,
      });
      // The same message again is no new one.
      await alice.send('b');
      const host = await TestHost.open(at, echo);
      await alice.reply('c');
      expect(host.ids()).toEqual(['a', 'b', 'c']);
      await eventually('room', async () => (await at.depth()) === 0);
      await alice.send('d');
      await alice.reply('d');
    });

    test('AC-BR8 a cancel reaches the host, and nothing of it is kept', async () => {
      const at = await up();
      const host = await TestHost.open(at);
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('a');
      const delivery = await host.next(1);
      alice.link.cancel('a');
      const heard = await eventually('the cancel', () => host.cancelled[0]);
      expect(heard).toMatchObject({ id: 'a', from: { mailbox: 'alice' } });
      delivery.ack();
      await eventually('an empty mailbox', async () => (await at.depth()) === 0);
      await at.restart();
      const next = await TestHost.open(at);
      expect(next.cancelled).toEqual([]);
    });

    test('AC-BR10 replies in another order reach who asked', async () => {
      const at = await up();
      const host = await TestHost.open(at);
      const [alice, bob] = [await TestWorker.open(at, 'alice'), await TestWorker.open(at, 'bob')];
      // The same ids: they are each worker's own.
      const ids = Array.from({ length: 8 }, (_, n) => `call-${n}`);
      await Promise.all(ids.flatMap((id) => [alice.send(id, { who: 'alice' }), bob.send(id, { who: 'bob' })]));
      await host.next(16);
      for (const delivery of [...host.deliveries].reverse()) echo(delivery);
      for (const id of ids) {
        expect(await alice.reply(id)).toBe('{"echo":{"who":"alice"}}');
        expect(await bob.reply(id)).toBe('{"echo":{"who":"bob"}}');
      }
    });

    test('AC-BR11 a reply that nobody waits for any more is taken once and does not come again', async () => {
      const at = await up();
      const host = await TestHost.open(at);
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('a');
      echo(await host.next(1));
      await alice.reply('a');
      await eventually('an empty mailbox', async () => (await at.depth()) === 0);
      await alice.link.close();
      const back = await TestWorker.open(at, 'alice');
      await back.send('b');
      echo(await host.next(2));
      await back.reply('b');
      expect(back.replies.map(({ id }) => id)).toEqual(['b']);
    });

    test('AC-BR12 whoever sent a message is who its key says, whatever its body says', async () => {
      const at = await up();
      const host = await TestHost.open(at);
      const carol = await TestWorker.open(at, 'carol');
      await carol.send('a', { from: { mailbox: 'alice', role: 'researcher' }, role: 'operator', mailbox: 'bob' });
      expect((await host.next(1)).from).toEqual({ mailbox: 'carol', role: undefined });
    });

    test('AC-BR14 a host that comes anew has the mailbox; the late end of the one before changes nothing', async () => {
      const at = await up();
      const first = await TestHost.open(at);
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('a');
      const stale = await first.next(1);
      const second = await TestHost.open(at);
      const again = await second.next(1);
      expect(again).toMatchObject({ id: 'a', deliveries: 2 });
      // Too late: it is not its message any more.
      stale.ack();
      await first.link.close();
      expect(await at.depth()).toBe(1);
      await alice.send('b');
      await second.next(2);
      expect(second.ids()).toEqual(['a', 'b']);
      for (const delivery of second.deliveries) echo(delivery);
      await alice.reply('b');
      await eventually('an empty mailbox', async () => (await at.depth()) === 0);
    });

    test('B10 a message that its host never finishes is given up with all reasons, and the rest goes on', async () => {
      const at = await up();
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('poison');
      let seen = 0;
      for (let n = 1; n <= deliveriesMax; n++) {
        const host = await TestHost.open(at);
        expect(await host.next(1)).toMatchObject({ id: 'poison', deliveries: n });
        seen++;
        await host.link.close();
      }
      const host = await TestHost.open(at, echo);
      await alice.send('good');
      await alice.reply('good');
      expect(host.ids()).toEqual(['good']);
      expect(seen).toBe(deliveriesMax);
      const [dead] = await eventually('a dead letter', async () => {
        const letters = await at.deadLetters();
        return letters.length > 0 && letters;
      });
      expect(dead).toMatchObject({ id: 'poison' });
      // Whoever waits for it hears so.
      expect(await alice.reply('poison')).toContain('"error"');
    });

    test('a request given back comes again, and not before its time', async () => {
      const at = await up();
      const times: number[] = [];
      const host = await TestHost.open(at, (delivery: Delivery) => {
        times.push(performance.now());
        if (delivery.deliveries === 1) delivery.release(600, 'not now');
        else echo(delivery);
      });
      const alice = await TestWorker.open(at, 'alice');
      await alice.send('a');
      await alice.reply('a');
      expect(host.deliveries.map(({ deliveries }) => deliveries)).toEqual([1, 2]);
      expect((times[1] as number) - (times[0] as number)).toBeGreaterThan(550);
    });

    test('news reach the worker they are for, or all; who is away misses them', async () => {
      const at = await up();
      const host = await TestHost.open(at);
      const [alice, bob] = [await TestWorker.open(at, 'alice'), await TestWorker.open(at, 'bob')];
      await eventually('both to have joined', () => host.joined.length >= 2 || !at.stampsRoles);
      host.link.tell('carol', '{"for":"carol"}');
      host.link.tell('alice', '{"for":"alice"}');
      host.link.tellAll('{"for":', '"all"}');
      await eventually('the news', () => alice.told.length === 2 && bob.told.length === 1);
      expect(alice.told).toEqual(['{"for":"alice"}', '{"for":"all"}']);
      expect(bob.told).toEqual(['{"for":"all"}']);
      const carol = await TestWorker.open(at, 'carol');
      host.link.tell('carol', '{"for":"carol later"}');
      await eventually('the news', () => carol.told.length === 1);
      expect(carol.told).toEqual(['{"for":"carol later"}']);
    });

    test('the same id again is the same request while it is held', async () => {
      const at = await up();
      const alice = await TestWorker.open(at, 'alice');
      await Promise.all([alice.send('a'), alice.send('a')]);
      await alice.send('a');
      expect(await at.depth()).toBe(1);
      const host = await TestHost.open(at, echo);
      await alice.send('b');
      await alice.reply('b');
      expect(host.ids()).toEqual(['a', 'b']);
    });

    test('a link that was closed sends nothing, and says so', async () => {
      const at = await up();
      const alice = await TestWorker.open(at, 'alice');
      await alice.link.close();
      expect(await alice.link.closed).toBeUndefined();
      await expect(alice.send('a')).rejects.toMatchObject({ details: { execution: 'not_executed' } });
    });
  });
}
