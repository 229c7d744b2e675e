/** A file whose bytes are not those that were written. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type BrokerStore, openBrokerStore } from '../../../src/broker/store/broker-store.js';
import { systemClock } from '../../../src/kernel/clock.js';
import type { HostError } from '../../../src/kernel/errors.js';
import { makeFolder } from './store-process.js';

let place: ReturnType<typeof makeFolder>;
let problems: (string | undefined)[];
let file: string;
beforeEach(() => {
  place = makeFolder('damage');
  problems = [];
  file = path.join(place.folder, 'broker.db');
});
afterEach(() => place.remove());

const open = (): Promise<BrokerStore> =>
  openBrokerStore({
    folder: place.folder,
    clock: systemClock,
    onProblem: (error: HostError) => problems.push(error.details.reason),
  });

const letter = (id: string, body: Buffer | string = `body of ${id}.`) => ({
  ...{ to: 'host', from: { mailbox: 'w1', role: 'r' }, id, kind: 'request' as const, sentAtMs: 1 },
  ...{ expiresAtMs: undefined, body: Buffer.from(body) },
});
const everything = { count: 1_000, bytes: 1e9 };
const idsIn = async (store: BrokerStore) => (await store.mail.read('host', 0, everything)).map(({ id }) => id);
const names = (count: number) => Array.from({ length: count }, (_, at) => `id-${at}-x`);

/** Changes one bit of the one place where `text` stands. */
function flip(text: string): void {
  const bytes = readFileSync(file);
  const at = bytes.indexOf(text);
  expect(at).toBeGreaterThan(0);
  expect(bytes.indexOf(text, at + 1)).toBe(-1);
  bytes.writeUInt8(bytes.readUInt8(at + 3) ^ 4, at + 3);
  writeFileSync(file, bytes);
}

/** Of the table of damaged rows, by a process of its own: SQLite in this one does not let go of files. */
function damagedRows(): unknown {
  const ask =
    "console.log(JSON.stringify(new (require('libsql'))(process.argv[1]).prepare('SELECT seq FROM damaged ORDER BY seq').raw().all([])))";
  return JSON.parse(execFileSync(process.execPath, ['-e', ask, file], { encoding: 'utf8' }));
}

test('AC-BR15: a body and a head that changed on disk are set aside and told; everything else is handed out, in order', async () => {
  const first = await open();
  for (const id of names(20)) await first.mail.put(letter(id));
  await first.mail.put(letter('large', Buffer.concat([Buffer.alloc(100_000, 'l'), Buffer.from('the end of it')])));
  await first.close();
  flip('body of id-7-x.');
  flip('w1rid-12-x');
  flip('the end of it');

  const second = await open();
  // The head is known to be wrong at once, bodies when they are read.
  expect(problems).toEqual(['damaged_mail']);
  const left = names(20).filter((id) => id !== 'id-7-x' && id !== 'id-12-x');
  expect(await idsIn(second)).toEqual(left);
  expect(problems).toEqual(Array(3).fill('damaged_mail'));
  expect(await idsIn(second)).toEqual(left);
  expect(await second.mail.put(letter('id-7-x'))).toEqual({ seq: 22, isNew: true });
  expect(await second.mail.sizes()).toMatchObject([{ mailbox: 'host', count: 19 }]);
  await second.close();
  expect(damagedRows()).toEqual([[8], [13], [21]]);
  expect(problems).toHaveLength(3);
});

test('AC-BR15: where the first ones of a mailbox are damaged, the next good one is read', async () => {
  const first = await open();
  for (const id of names(6)) await first.mail.put(letter(id));
  await first.close();
  for (const id of names(4)) flip(`body of ${id}.`);
  const second = await open();
  expect(await second.mail.read('host', 0, { count: 1, bytes: 1 })).toMatchObject([{ id: 'id-4-x' }]);
  await second.close();
});

test('AC-BR15: a dead letter that is damaged cannot be revived, and is told', async () => {
  const first = await open();
  const { seq } = await first.mail.put(letter('id-1-x'));
  first.mail.bury(seq, ['why']);
  await first.close();
  flip('body of id-1-x.');
  const second = await open();
  expect(await second.mail.deadLetters()).toHaveLength(1);
  expect(await second.mail.revive(seq)).toBeUndefined();
  expect(await second.mail.deadLetters()).toHaveLength(0);
  expect(problems).toEqual(['damaged_mail']);
  await second.close();
});

test('D-40: a row of the journal that is damaged is never run again: it counts as lost until it is finished', async () => {
  const claim = {
    mailbox: 'w1',
    key: 'key-1',
    hash: 'h',
    rememberUntil: new Date(Date.now() + 1e7),
    isRepeatable: true,
  };
  const first = await open();
  await first.journal.claim(claim);
  await first.journal.finish('w1', 'key-1', Buffer.from('the reply of it'));
  await first.close();
  flip('the reply of it');
  const second = await open();
  expect(await second.journal.claim(claim)).toEqual({ kind: 'lost' });
  expect(problems).toEqual(['damaged_call']);
  await second.journal.finish('w1', 'key-1', Buffer.from('nobody knows'));
  expect(await second.journal.claim(claim)).toEqual({ kind: 'done', reply: Buffer.from('nobody knows') });
  await second.close();
});

test('D-40: a journal in the place of one that is gone runs nothing that was sent before it began, also in the next process', async () => {
  const claim = (key: string, firstSentAt?: Date, isRepeatable = false) => ({
    ...{ mailbox: 'w1', key, hash: 'h', isRepeatable, firstSentAt },
    rememberUntil: new Date(Date.now() + 1e7),
  });
  const first = await open();
  const sentAt = new Date();
  expect(await first.journal.claim(claim('ran', sentAt))).toEqual({ kind: 'mine' });
  await first.close();
  writeFileSync(file, 'not a database at all');
  const later = new Date(Date.now() + 60_000);
  for (const turn of ['second', 'third']) {
    const store = await open();
    expect(await store.journal.claim(claim('ran', sentAt))).toEqual({ kind: 'lost' });
    expect(await store.journal.find('w1', 'ran', { firstSentAt: sentAt })).toEqual({ kind: 'lost' });
    expect(store.mail.beganAtMs).toBeGreaterThan(sentAt.getTime());
    // Whoever asks without having sent it before is not in doubt.
    expect(await store.journal.find('w1', 'ran')).toBeUndefined();
    expect(await store.journal.claim(claim(`new-${turn}`))).toEqual({ kind: 'mine' });
    expect(await store.journal.claim(claim(`later-${turn}`, later))).toEqual({ kind: 'mine' });
    expect(await store.journal.claim(claim(`again-${turn}`, sentAt, true))).toEqual({ kind: 'mine' });
    await store.close();
  }
  expect(problems).toEqual(['unusable_store']);
});

test.each([
  ['is no such file', () => writeFileSync(file, 'not a database at all')],
  ['lost its pages', () => writeFileSync(file, readFileSync(file).fill(0xff, 4096))],
  ['lost its end', () => writeFileSync(file, readFileSync(file).subarray(0, 4096 * 3))],
] as const)(
  'AC-BR15: a file that %s is set aside and told, never removed, and a new one is begun',
  async (_what, damage) => {
    const first = await open();
    for (const id of names(50)) await first.mail.put(letter(id, Buffer.alloc(500, id)));
    await first.close();
    damage();
    const damaged = readFileSync(file);
    const second = await open();
    expect(problems).toEqual(['unusable_store']);
    expect(await idsIn(second)).toEqual([]);
    expect(await second.mail.put(letter('new'))).toEqual({ seq: 1, isNew: true });
    await second.close();
    expect(readFileSync(`${file}.unusable`).equals(damaged)).toBe(true);
    const third = await open();
    expect(await idsIn(third)).toEqual(['new']);
    await third.close();
    for (const name of readdirSync(place.folder))
      expect([name, statSync(path.join(place.folder, name)).mode & 0o077]).toEqual([name, 0]);
  },
);
