/** The store without its thread. A copy of its folder is what a kill at that moment leaves. */
import { cpSync, mkdtempSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'libsql';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Mail } from '../store-port.js';
import { MailFile } from './mail-file.js';
import { type Answer, type Operation, type StoreLimits, storeLimits } from './store-words.js';

let root: string;
let folders = 0;
let problems: (string | undefined)[];
beforeEach(() => {
  root = mkdtempSync(path.join(os.tmpdir(), 'hostler-mail-file-'));
  problems = [];
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const newFolder = () => mkdtempSync(path.join(root, `${++folders}-`));
const small = { reserveBytes: 4096 };
function open(folder: string, limits: Partial<StoreLimits> = {}): MailFile {
  const onProblem = ({ details }: { details: { reason?: string } }) => problems.push(details.reason);
  return new MailFile({ folder, limits: { ...storeLimits, ...small, ...limits }, nowMs: 1_000, onProblem });
}
/** What another process finds after a kill at this moment. */
function killed(folder: string): string {
  const copy = newFolder();
  cpSync(folder, copy, { recursive: true });
  return copy;
}

const put = (id: string, changes: object = {}): Operation => ({
  op: 'put',
  mail: {
    ...{ to: 'host', from: { mailbox: 'w1', role: 'r' }, id, kind: 'request', sentAtMs: 5 },
    ...{ expiresAtMs: 105, body: Buffer.from(`body of ${id}`), ...changes },
  },
});
const read = (mailbox = 'host', afterSeq = 0, count = 100, bytes = 1e9): Operation => ({
  ...{ op: 'read', mailbox, afterSeq, count, bytes },
});
const run = <T = Answer>(file: MailFile, ...operations: Operation[]): T[] => file.run(operations, 2_000) as T[];
const mailsIn = (file: MailFile, ...args: Parameters<typeof read>): readonly Mail[] =>
  (run<{ mails: Mail[] }>(file, read(...args))[0] as { mails: Mail[] }).mails;
const idsIn = (file: MailFile, ...args: Parameters<typeof read>) => mailsIn(file, ...args).map(({ id }) => id);

describe('mail', () => {
  test('is read as it was put, in order, by mailbox', () => {
    const file = open(newFolder());
    expect(run(file, put('a'), put('b', { to: 'other' }), put('c', { expiresAtMs: undefined }))).toEqual([
      { seq: 1, isNew: true },
      { seq: 2, isNew: true },
      { seq: 3, isNew: true },
    ]);
    expect(mailsIn(file)).toEqual([
      { ...(put('a') as { mail: object }).mail, seq: 1, deliveries: 0 },
      { ...(put('c', { expiresAtMs: undefined }) as { mail: object }).mail, seq: 3, deliveries: 0 },
    ]);
    expect(idsIn(file, 'host', 1)).toEqual(['c']);
  });

  test('D-43 a reply and the request that it answers are there, or not, together', () => {
    const folder = newFolder();
    const file = open(folder);
    run(file, put('a'));
    const before = killed(folder);
    const reply = { ...put('a', { to: 'w1', kind: 'reply' }), answers: 1 } as Operation;
    run(file, reply);
    const asBefore = open(before);
    expect([idsIn(asBefore), idsIn(asBefore, 'w1')]).toEqual([['a'], []]);
    const after = open(killed(folder));
    expect([idsIn(after), idsIn(after, 'w1')]).toEqual([[], ['a']]);
  });

  test('of one sender, id and kind is held once, and anew when it was taken', () => {
    const file = open(newFolder());
    expect(run(file, put('a'), put('a', { body: Buffer.from('other') }))).toEqual([
      { seq: 1, isNew: true },
      { seq: 1, isNew: false },
    ]);
    const others = [
      put('a', { kind: 'reply' }),
      put('a', { from: { mailbox: 'w2', role: 'r' } }),
      put('a', { to: 'w1' }),
    ];
    expect(run<{ isNew: boolean }>(file, ...others).map(({ isNew }) => isNew)).toEqual([true, true, true]);
    expect(run(file, { op: 'remove', seq: 1 }, put('a'))).toEqual([{ seq: 5, isNew: true }]);
  });

  test('D-40 a request that comes again is not taken while its reply waits for whoever sent it', () => {
    const file = open(newFolder());
    const reply = put('a', { to: 'w1', from: { mailbox: 'host', role: undefined }, kind: 'reply' });
    run(file, put('a'), { ...reply, answers: 1 } as Operation);
    expect(run(file, put('a'))).toEqual([{ seq: 2, isNew: false, isAnswered: true }]);
    expect(run(file, put('b'), put('a', { from: { mailbox: 'w2', role: 'r' } }))).toMatchObject([
      { isNew: true },
      { isNew: true },
    ]);
    expect(run(file, { op: 'remove', seq: 2 }, put('a'))).toEqual([{ seq: 5, isNew: true }]);
  });

  test('a request is found by who sent it under which id, with how often it was handed out', () => {
    const file = open(newFolder());
    run(file, put('a'), put('b'), put('c', { kind: 'reply' }), { op: 'handedOut', seq: 2 });
    const asked = (id: string, sender = 'w1') =>
      run<{ mails: Mail[] }>(file, { op: 'request', to: 'host', sender, id })[0]?.mails;
    expect(asked('b')).toMatchObject([{ seq: 2, id: 'b', kind: 'request', deliveries: 1 }]);
    expect([asked('c'), asked('b', 'w2'), asked('nothing')]).toEqual([[], [], []]);
    run(file, { op: 'remove', seq: 2 });
    expect(asked('b')).toEqual([]);
  });

  test('is read within bounds, and at least one of it', () => {
    const file = open(newFolder());
    run(file, ...['a', 'b', 'c'].map((id) => put(id, { body: Buffer.alloc(100) })));
    expect(idsIn(file, 'host', 0, 2)).toEqual(['a', 'b']);
    expect(idsIn(file, 'host', 0, 9, 250)).toEqual(['a', 'b']);
    expect(idsIn(file, 'host', 0, 9, 1)).toEqual(['a']);
    expect(idsIn(file, 'host', 3)).toEqual([]);
  });

  test('D-53: a number is never given twice, also when the last one is gone and the process with it', () => {
    const folder = newFolder();
    const file = open(folder);
    run(file, put('a'), put('b'));
    run(file, { op: 'remove', seq: 2 }, { op: 'remove', seq: 1 });
    const next = open(killed(folder));
    expect(run(next, put('a'))).toEqual([{ seq: 3, isNew: true }]);
  });

  test('counts how often it was handed out, over a kill', () => {
    const folder = newFolder();
    const file = open(folder);
    run(file, put('a'), put('b'), { op: 'handedOut', seq: 1 });
    run(file, { op: 'handedOut', seq: 1 }, { op: 'handedOut', seq: 9 });
    const next = open(killed(folder));
    expect(mailsIn(next).map(({ deliveries }) => deliveries)).toEqual([2, 0]);
    run(next, { op: 'remove', seq: 1 }, put('a'));
    expect(mailsIn(next).map(({ seq, deliveries }) => [seq, deliveries])).toEqual([
      [2, 0],
      [3, 0],
    ]);
  });

  test('B9: is refused above its bounds, by count and by bytes, and nothing that is held goes for it', () => {
    const file = open(newFolder(), { mailCount: 2 });
    const refused = { refused: { code: 'insufficient_storage', reason: 'mail_limit', execution: 'not_executed' } };
    expect(run(file, put('a'), put('b'), put('c'), put('a'))).toMatchObject([
      { seq: 1 },
      { seq: 2 },
      refused,
      { seq: 1 },
    ]);
    // A dead letter takes its place as well.
    run(file, { op: 'bury', seq: 1, reasons: [] });
    expect(run(file, put('c'))).toMatchObject([refused]);
    expect(run(file, { op: 'remove', seq: 2 }, put('c'))).toMatchObject([{ isNew: true }]);
    const bytes = open(newFolder(), { mailBytes: 100 });
    expect(run(bytes, put('a', { body: Buffer.alloc(60) }), put('b', { body: Buffer.alloc(41) }))).toMatchObject([
      { seq: 1 },
      refused,
    ]);
    expect(run(bytes, put('c', { body: Buffer.alloc(40) }))).toMatchObject([{ isNew: true }]);
  });
});

describe('dead letters', () => {
  test('say why they died, outlive a kill and are revived once, as if new', () => {
    const folder = newFolder();
    run(open(folder), put('a'), put('b'), { op: 'bury', seq: 1, reasons: ['first', 'second'] });
    const file = open(killed(folder));
    const [dead] = run<{ deadLetters: object[] }>(file, { op: 'deadLetters' });
    expect(dead?.deadLetters).toEqual([
      {
        ...{ seq: 1, to: 'host', from: { mailbox: 'w1', role: 'r' }, id: 'a', kind: 'request', sentAtMs: 5 },
        ...{ diedAtMs: 2_000, bytes: 9, reasons: ['first', 'second'] },
      },
    ]);
    expect(idsIn(file)).toEqual(['b']);
    const revive: Operation = { op: 'revive', seq: 1 };
    expect(run(file, revive, revive)).toMatchObject([
      { revived: { seq: 3, id: 'a', deliveries: 0, sentAtMs: 2_000, expiresAtMs: 2_100 } },
      { revived: undefined },
    ]);
    expect(idsIn(file)).toEqual(['b', 'a']);
    expect(run(file, { op: 'deadLetters' })).toEqual([{ deadLetters: [] }]);
  });

  test('are dropped once; one that its sender sent again is not revived beside it', () => {
    const file = open(newFolder());
    run(file, put('a'), { op: 'bury', seq: 1, reasons: [] }, put('a'));
    expect(run(file, { op: 'revive', seq: 1 })).toMatchObject([{ refused: { reason: 'already_held' } }]);
    const drop: Operation = { op: 'dropDead', seq: 1 };
    expect(run(file, drop, drop, { op: 'revive', seq: 1 })).toEqual([
      { isDropped: true },
      { isDropped: false },
      { revived: undefined },
    ]);
    expect(idsIn(file)).toEqual(['a']);
  });

  test('B9: above their bounds the oldest go, and that is told', () => {
    const file = open(newFolder(), { deadCount: 2, deadBytes: 150 });
    const bury = (seq: number): Operation => ({ op: 'bury', seq, reasons: [] });
    const deadNow = () =>
      (run<{ deadLetters: { seq: number }[] }>(file, { op: 'deadLetters' })[0]?.deadLetters ?? []).map(
        ({ seq }) => seq,
      );
    run(file, ...['a', 'b', 'c', 'd'].map((id) => put(id, { body: Buffer.alloc(60) })));
    run(file, bury(3), bury(1));
    expect([deadNow(), problems]).toEqual([[3, 1], []]);
    run(file, bury(2));
    expect([deadNow(), problems]).toEqual([[1, 2], ['dead_letters_full']]);
    run(file, put('e', { body: Buffer.alloc(120) }), bury(5));
    expect([deadNow(), problems]).toEqual([[5], Array(3).fill('dead_letters_full')]);
    expect(idsIn(file)).toEqual(['d']);
  });

  test('B9: above their bounds whoever has most loses its oldest, and nobody else, over a restart too', () => {
    const folder = newFolder();
    const from = (mailbox: string) => ({ from: { mailbox, role: undefined } });
    const bury = (seq: number): Operation => ({ op: 'bury', seq, reasons: [] });
    const deadIn = (file: MailFile) =>
      (run<{ deadLetters: { id: string }[] }>(file, { op: 'deadLetters' })[0]?.deadLetters ?? []).map(({ id }) => id);
    const file = open(folder, { deadCount: 3 });
    run(file, put('calm', from('calm')), put('answer', { kind: 'reply', to: 'flood', ...from('host') }));
    run(file, ...[3, 4, 5].map((n) => put(`flood${n}`, from('flood'))));
    run(file, ...[1, 2, 3, 4].map(bury));
    expect([deadIn(file), problems]).toEqual([['calm', 'flood3', 'flood4'], ['dead_letters_full']]);
    const next = open(killed(folder), { deadCount: 3 });
    run(next, bury(5));
    expect(deadIn(next)).toEqual(['calm', 'flood4', 'flood5']);
  });
});

test('everything of one group is kept or nothing, whatever is copied when', () => {
  const folder = newFolder();
  const file = open(folder, { logBytes: 20_000 });
  for (let group = 0; group < 12; group++) {
    run(file, ...Array.from({ length: 7 }, (_, at) => put(`${group}-${at}`)), { op: 'remove', seq: group * 7 + 1 });
    expect(mailsIn(open(killed(folder)))).toHaveLength((group + 1) * 6);
  }
});

test('AC-BR15: more than is read at a time is all there after a kill, and what no text can hold is set aside alone', () => {
  const folder = newFolder();
  const ids = Array.from({ length: 2_500 }, (_, n) => `id-${n}`);
  run(open(folder), ...ids.map((id) => put(id, { to: `box-${ids.indexOf(id) % 3}` })));
  const whole = open(killed(folder));
  expect(run<{ sizes: object[] }>(whole, { op: 'sizes' })[0]?.sizes).toMatchObject([
    { mailbox: 'box-0', count: 834 },
    { mailbox: 'box-1', count: 833 },
    { mailbox: 'box-2', count: 833 },
  ]);
  expect(run(whole, put('id-2499', { to: 'box-0' }))).toEqual([{ seq: 2_500, isNew: false }]);
  whole.close();
  const damaged = killed(folder);
  const database = new Database(path.join(damaged, 'broker.db'));
  // Bytes where there was a text, in the second page of three.
  database.exec("UPDATE mail SET id = x'ff00' WHERE seq = 1500");
  database.close();
  const file = open(killed(damaged));
  expect(mailsIn(file, 'box-2', 0, 10_000)).toHaveLength(832);
  expect(mailsIn(file, 'box-0', 0, 10_000)).toHaveLength(834);
  expect(mailsIn(file, 'box-1', 0, 10_000).map(({ seq }) => seq)).toEqual(
    ids.flatMap((_, n) => (n % 3 === 1 ? [n + 1] : [])),
  );
  expect(problems).toEqual(['damaged_mail']);
});

test('B5: what a failed process left is taken over from a log that was written anew', () => {
  const folder = newFolder();
  run(open(folder), put('a'));
  const left = killed(folder);
  const log = path.join(left, 'broker.db-wal');
  renameSync(path.join(left, 'broker.db'), path.join(left, 'broker.db-failed'));
  const { ino, size } = statSync(log);
  expect(size).toBeGreaterThan(0);
  const file = open(left);
  expect(statSync(log).ino).not.toBe(ino);
  expect(idsIn(file)).toEqual(['a']);
  expect(readdirSync(left).filter((name) => /failed|copy/.test(name))).toEqual([]);
});

test('closed, it is one file and its reserve, for nobody else to read', () => {
  const folder = newFolder();
  const file = open(folder);
  run(file, put('a'));
  expect(file.close()).toBeUndefined();
  expect(statSync(path.join(folder, 'broker.db-wal')).size).toBe(0);
  for (const name of readdirSync(folder))
    expect([name, statSync(path.join(folder, name)).mode & 0o777]).toEqual([name, 0o600]);
  expect(idsIn(open(killed(folder)))).toEqual(['a']);
});

test('B10 what became of a letter that is put back is remembered for as long as it may be handed out', () => {
  const file = open(newFolder());
  const claim: Operation = {
    op: 'claim',
    claim: { mailbox: 'w1', key: 'a', hash: 'h', isRepeatable: false, rememberUntil: new Date(2_500) },
  };
  const finish: Operation = { op: 'finish', mailbox: 'w1', key: 'a', reply: Buffer.from('{}') };
  run(file, put('a', { expiresAtMs: 10_005 }), claim, finish, { op: 'bury', seq: 1, reasons: ['lost'] });
  run(file, { op: 'revive', seq: 1 });
  const found = (atMs: number) => file.run([{ op: 'tidy' }, { op: 'find', mailbox: 'w1', key: 'a' }], atMs).at(-1);
  // Put back at 2,000 with 10,000 to go, and ten minutes for doubt.
  expect(found(2_000 + 10_000 + 600_000)).toMatchObject({ claimed: { kind: 'done' } });
  expect(found(2_000 + 10_000 + 600_001)).toEqual({ done: true });
});

describe('a file that was made in the place of another', () => {
  const claim = (key: string, firstSentAt?: Date): Operation => ({
    op: 'claim',
    claim: {
      ...{ mailbox: 'w1', key, hash: 'h', isRepeatable: false },
      ...{ rememberUntil: new Date(9_000), firstSentAt },
    },
  });
  const before = new Date(500);

  test('D-40 says so though a kill came between setting the damaged one aside and making it, and after every restart', () => {
    const folder = newFolder();
    const file = path.join(folder, 'broker.db');
    writeFileSync(`${file}.unusable`, 'what was there');
    const cut = { 'no file yet': killed(folder), 'an empty one': killed(folder) };
    writeFileSync(path.join(cut['an empty one'], 'broker.db'), '');
    for (const [what, left] of Object.entries(cut)) {
      const found = run(open(left), claim('ran', before), claim('new'));
      expect([what, found]).toEqual([what, [{ claimed: { kind: 'lost' } }, { claimed: { kind: 'mine' } }]]);
      const again = open(killed(left));
      expect(again.beganAtMs).toBe(1_000);
      expect([what, run(again, claim('other', before))]).toEqual([what, [{ claimed: { kind: 'lost' } }]]);
    }
  });

  test('D-40 is not one that is simply the first: what was sent before it is run', () => {
    const file = open(newFolder());
    expect(run(file, claim('early', before))).toEqual([{ claimed: { kind: 'mine' } }]);
    expect(file.beganAtMs).toBeUndefined();
  });
});
