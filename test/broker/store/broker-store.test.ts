/** The store through its thread. */
import { chmodSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type BrokerStore, openBrokerStore } from '../../../src/broker/store/broker-store.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { makeFolder, runStore } from './store-process.js';

let place: ReturnType<typeof makeFolder>;
let store: BrokerStore | undefined;
beforeEach(() => {
  place = makeFolder('thread');
});
afterEach(async () => {
  await store?.close();
  store = undefined;
  place.remove();
});

async function open(limits = {}): Promise<BrokerStore> {
  store = await openBrokerStore({ folder: place.folder, clock: systemClock, limits });
  return store;
}

const letter = (id: string, bytes = 20) => ({
  ...{ to: 'host', from: { mailbox: 'w1', role: 'r' }, id, kind: 'request' as const, sentAtMs: 1 },
  ...{ expiresAtMs: undefined, body: Buffer.alloc(bytes, id) },
});
const everything = { count: 10_000, bytes: 1e9 };
const names = (count: number) => Array.from({ length: count }, (_, at) => `id-${at}`);

test('AC-BR4: numbers follow the order in which mail was put, also of thousands at once, and each has its body', async () => {
  const { mail } = await open({ groupCount: 100, groupBytes: 10_000 });
  const receipts = await Promise.all(names(3_000).map((id, at) => mail.put(letter(id, at % 300))));
  expect(receipts.map(({ seq }) => seq)).toEqual(names(3_000).map((_, at) => at + 1));
  const mails = await mail.read('host', 0, everything);
  expect(mails.map(({ id }) => id)).toEqual(names(3_000));
  mails.forEach(({ id, body }, at) => {
    expect(body.equals(Buffer.alloc(at % 300, id))).toBe(true);
  });
});

test('those who wait at the same time share a sync', async () => {
  const log = path.join(place.folder, 'trace');
  const strace = ['strace', '-f', '-c', '-o', log, '-e', 'trace=fsync'];
  const said = await runStore(path.join(place.folder, 'store'), ['put', 512, 2_048], strace);
  expect(said.of('R')).toHaveLength(2_048);
  const calls = Number(/\s(\d+)\s+(?:\d+\s+)?fsync/.exec(readFileSync(log, 'utf8'))?.[1]);
  // Some of opening and closing, some of writing the log into the file, and of 2,048 messages one for many.
  expect(calls).toBeGreaterThan(5);
  expect(calls).toBeLessThan(512);
}, 60_000);

test('the event loop turns on while the disk takes its time', async () => {
  // Each sync takes 200 ms longer.
  const strace = ['strace', '-f', '-o', '/dev/null', '-e', 'trace=fsync', '-e', 'inject=fsync:delay_exit=200000'];
  const said = await runStore(path.join(place.folder, 'store'), ['turns'], strace);
  expect(said.of('T')).toHaveLength(5);
  for (const turns of said.of('T').map(Number)) expect(turns).toBeGreaterThan(5);
}, 60_000);

test('a dead letter that two revive at once is revived for one of them', async () => {
  const { mail } = await open();
  const { seq } = await mail.put(letter('a'));
  mail.bury(seq, ['why']);
  const revived = await Promise.all([mail.revive(seq), mail.revive(seq), mail.dropDead(seq)]);
  expect(revived).toMatchObject([{ seq: 2, id: 'a' }, undefined, false]);
  expect(await mail.read('host', 0, everything)).toMatchObject([{ seq: 2 }]);
});

test('B9: what waits for the disk is bounded by count and by bytes; what ends something is taken all the same', async () => {
  const { mail, journal } = await open({ waitingCount: 3, waitingBytes: 100 });
  await journal.claim({
    mailbox: 'w1',
    key: 'k',
    hash: 'h',
    rememberUntil: new Date(Date.now() + 1e6),
    isRepeatable: false,
  });
  const outcome = (promise: Promise<unknown>) =>
    promise.then(
      () => 'held',
      (error) => [error.code, error.details.execution],
    );
  const refused = ['overloaded', 'not_executed'];
  const byCount = ['a', 'b', 'c', 'd'].map((id) => outcome(mail.put(letter(id))));
  const ends = outcome(journal.finish('w1', 'k', Buffer.alloc(1_000)));
  expect(await Promise.all([...byCount, ends])).toEqual(['held', 'held', 'held', refused, 'held']);
  const byBytes = [
    outcome(mail.put(letter('e', 60))),
    outcome(mail.put(letter('f', 41))),
    outcome(mail.put(letter('g', 40))),
  ];
  expect(await Promise.all(byBytes)).toEqual(['held', refused, 'held']);
  expect((await mail.read('host', 0, everything)).map(({ id }) => id)).toEqual(['a', 'b', 'c', 'e', 'g']);
});

test('closing answers everything that was asked before, and takes nothing after', async () => {
  const { mail, close } = await open();
  const puts = names(100).map((id) => mail.put(letter(id)));
  mail.remove(1);
  const closing = Promise.all([close(), mail.close()]);
  const late = expect(mail.put(letter('late'))).rejects.toMatchObject({
    details: { reason: 'store_closed', execution: 'not_executed' },
  });
  expect(await Promise.all(puts)).toHaveLength(100);
  await Promise.all([closing, late]);
  const again = await open();
  expect(await again.mail.sizes()).toEqual([{ mailbox: 'host', count: 99, bytes: 99 * 20 }]);
});

test('the folder and what is in it are for nobody else, and a folder that others may write to is refused', async () => {
  const folder = path.join(place.folder, 'new');
  const first = await openBrokerStore({ folder, clock: systemClock });
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  await first.close();
  chmodSync(folder, 0o770);
  await expect(openBrokerStore({ folder, clock: systemClock })).rejects.toMatchObject({
    code: 'invalid_spec',
    details: { reason: 'others_may_write' },
  });
});
