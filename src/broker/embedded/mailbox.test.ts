import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Entry, entryOf, Mailbox, type MailboxReader } from './mailbox.js';

const rules = { deliveries: 5, redeliverMs: { first: 1_000, max: 60_000 } };
const mail = (seq: number, sender = 'a', deliveries = 0): Entry =>
  entryOf({
    ...{ seq, to: 'host', from: { mailbox: sender, role: undefined }, id: `m${seq}`, kind: 'request' },
    ...{ sentAtMs: 0, expiresAtMs: undefined, body: Buffer.alloc(1), deliveries },
  });
const reader = (epoch: string, window: number, holder?: string): MailboxReader => ({
  ...{ epoch, holder, window, windowOfOne: window },
});

test('nothing is handed out without a subscriber, nor past its window', () => {
  const mailbox = new Mailbox(rules);
  for (const seq of [1, 2, 3]) mailbox.add(mail(seq));
  expect(mailbox.next()).toBeUndefined();
  mailbox.subscribe(reader('one', 2));
  for (let next = mailbox.next(); next; next = mailbox.next()) mailbox.handOut(next);
  expect(mailbox.heldCount).toBe(2);
});

test('the end of an epoch that is over changes nothing', () => {
  const mailbox = new Mailbox(rules);
  mailbox.add(mail(1));
  mailbox.subscribe(reader('one', 1));
  const entry = mailbox.next() as Entry;
  const lease = mailbox.handOut(entry);
  expect(mailbox.unsubscribe('one', 'gone')).toHaveLength(1);
  mailbox.subscribe(reader('two', 1));
  const again = mailbox.handOut(entry);
  expect(again).not.toBe(lease);
  expect(mailbox.unsubscribe('one', 'late')).toBeUndefined();
  expect(mailbox.ack({ seq: 1, lease }, 'one')).toBeUndefined();
  expect(mailbox.ack({ seq: 1, lease }, 'two')).toBeUndefined();
  expect(mailbox.ack({ seq: 1, lease: again }, 'one')).toBeUndefined();
  expect(mailbox.epoch).toBe('two');
  expect(mailbox.ack({ seq: 1, lease: again }, 'two')).toBe(entry);
  expect(mailbox.size).toBe(0);
});

test('what is being answered when its holder goes comes to the next one only when there is no answer', () => {
  const mailbox = new Mailbox(rules);
  mailbox.add(mail(1));
  mailbox.add(mail(2));
  mailbox.subscribe(reader('one', 2));
  for (let next = mailbox.next(); next; next = mailbox.next()) {
    const lease = mailbox.handOut(next);
    expect(mailbox.ending({ seq: next.seq, lease: 'other' }, 'one')).toBeUndefined();
    expect(mailbox.ending({ seq: next.seq, lease }, 'one')).toBe(next);
  }
  const [first, second] = [mailbox.get(1) as Entry, mailbox.get(2) as Entry];
  expect(mailbox.unsubscribe('one', 'lost')).toEqual([]);
  mailbox.subscribe(reader('two', 2));
  expect([mailbox.next(), mailbox.heldCount, mailbox.size]).toEqual([undefined, 0, 2]);
  mailbox.forget(first);
  expect(mailbox.notEnded(first)).toBeUndefined();
  expect(mailbox.notEnded(second)).toEqual({ entry: second, isDead: false });
  expect(mailbox.next()).toBe(second);
  expect([second.deliveries, second.reasons, mailbox.size]).toEqual([1, ['lost'], 1]);
});

test('what was being answered for the last time it may be handed out is dead when there is no answer', () => {
  const mailbox = new Mailbox(rules);
  const entry = mail(1, 'a', rules.deliveries - 1);
  mailbox.add(entry);
  mailbox.subscribe(reader('one', 1));
  const lease = mailbox.handOut(entry);
  mailbox.ending({ seq: 1, lease }, 'one');
  expect(mailbox.release({ seq: 1, lease }, 'one', 0, 'not kept', 0)).toBeUndefined();
  expect(mailbox.notEnded(entry)).toEqual({ entry, isDead: true });
  expect(mailbox.size).toBe(0);
});

test.each([
  ['nobody had it before', [['a', false]]],
  [
    'the same one had it before, over another connection',
    [
      ['a', false],
      ['a', false],
      ['a', false],
    ],
  ],
  [
    'another one had it, however long ago',
    [
      ['a', false],
      ['b', true],
      ['b', true],
      ['a', true],
    ],
  ],
  [
    'one that does not say who it is may be another',
    [
      [undefined, false],
      [undefined, true],
      ['a', true],
    ],
  ],
] as const)('B7 whose hands it was in: %s', (_, steps) => {
  const mailbox = new Mailbox(rules);
  const entry = mail(1);
  mailbox.add(entry);
  steps.forEach(([holder, wasElsewhere], at) => {
    mailbox.subscribe(reader(`e${at}`, 1, holder));
    mailbox.handOut(mailbox.next() as Entry);
    expect(entry.wasElsewhere).toBe(wasElsewhere);
    mailbox.unsubscribe(`e${at}`, 'lost');
  });
});

test('B7 what was handed out before it was read from the disk may have been anywhere', () => {
  const mailbox = new Mailbox(rules);
  mailbox.add(mail(1, 'a', 1));
  mailbox.add(mail(2));
  mailbox.subscribe(reader('one', 2, 'a'));
  const handedOut: Entry[] = [];
  for (let next = mailbox.next(); next; next = mailbox.next()) {
    mailbox.handOut(next);
    handedOut.push(next);
  }
  expect(handedOut.map(({ wasElsewhere }) => wasElsewhere)).toEqual([true, false]);
});

test('a request is found by its name, not by looking at all that waits', () => {
  const mailbox = new Mailbox(rules);
  let looks = 0;
  for (let seq = 1; seq <= 1_000; seq++) {
    const get = () => {
      looks++;
      return `m${seq}`;
    };
    mailbox.add(Object.defineProperty(mail(seq), 'id', { get }));
  }
  looks = 0;
  const found = mailbox.request('a', 'm1000') as Entry;
  expect([found.seq, mailbox.request('b', 'm1000')]).toEqual([1_000, undefined]);
  mailbox.forget(found);
  expect(mailbox.request('a', 'm1000')).toBeUndefined();
  expect(looks).toBeLessThan(5);
});

/** One holder at a time, no more than five deliveries, nothing lost: whatever happens in whatever order. */
test('B14 whatever happens, each message is held by one, waits, rests, was finished, or is dead after five', () => {
  const step = fc.record({ what: fc.nat(6), at: fc.nat(20) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const mailbox = new Mailbox(rules);
      const held = new Map<number, { lease: string; epoch: string }>();
      const stale: { seq: number; lease: string; epoch: string }[] = [];
      const over = new Set<number>();
      let [seq, epochs, nowMs] = [0, 0, 0];
      const lost = (epoch: string) => {
        for (const { entry, isDead } of mailbox.unsubscribe(epoch, 'lost') ?? []) {
          expect(entry.deliveries === 5).toBe(isDead);
          expect(entry.reasons).toHaveLength(entry.deliveries);
          if (isDead) over.add(entry.seq);
          stale.push({ seq: entry.seq, ...(held.get(entry.seq) as { lease: string; epoch: string }) });
        }
        held.clear();
      };
      for (const { what, at } of steps) {
        const epoch = mailbox.epoch;
        const [chosen] = [...held].slice(at % Math.max(held.size, 1));
        if (what === 0) mailbox.add(mail(++seq, `s${at % 3}`));
        if (what === 1) {
          if (epoch) lost(epoch);
          mailbox.subscribe(reader(`e${++epochs}`, 1 + (at % 4)));
        }
        const next = what === 2 ? mailbox.next() : undefined;
        if (next) {
          expect(held.has(next.seq)).toBe(false);
          held.set(next.seq, { lease: mailbox.handOut(next), epoch: mailbox.epoch as string });
        }
        if (what === 3 && chosen && epoch) {
          expect(mailbox.ack({ seq: chosen[0], lease: chosen[1].lease }, epoch)?.seq).toBe(chosen[0]);
          held.delete(chosen[0]);
          over.add(chosen[0]);
        }
        if (what === 4 && chosen && epoch) {
          const back = mailbox.release({ seq: chosen[0], lease: chosen[1].lease }, epoch, at * 100, 'r', nowMs);
          held.delete(chosen[0]);
          stale.push({ seq: chosen[0], ...chosen[1] });
          if (back !== false && back?.isDead) over.add(chosen[0]);
        }
        if (what === 5) {
          nowMs += at * 1_000;
          mailbox.wake(nowMs);
        }
        // Whoever does not hold it any more changes nothing.
        if (what === 6 && epoch) for (const late of stale) expect(mailbox.ack(late, late.epoch)).toBeUndefined();
        expect(mailbox.heldCount).toBe(held.size);
        expect(mailbox.size).toBe(seq - over.size);
      }
    }),
  );
});
