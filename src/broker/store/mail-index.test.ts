import { expect, test } from 'vitest';
import { MailIndex } from './mail-index.js';

const mail = (seq: number, mailbox = 'host') => ({ seq, mailbox, key: `${mailbox}-${seq}`, bytes: 10, deliveries: 0 });
const seqsOf = (index: MailIndex, mailbox: string, after = 0) => [...index.after(mailbox, after)].map(({ seq }) => seq);

test('what is held is found by its key and in order, above a place', () => {
  const index = new MailIndex();
  for (const seq of [3, 4, 7, 9]) index.add(mail(seq, seq === 4 ? 'other' : 'host'));
  expect(seqsOf(index, 'host')).toEqual([3, 7, 9]);
  expect(seqsOf(index, 'host', 3)).toEqual([7, 9]);
  expect(seqsOf(index, 'host', 5)).toEqual([7, 9]);
  expect(seqsOf(index, 'host', 9)).toEqual([]);
  expect(seqsOf(index, 'nobody')).toEqual([]);
  expect(index.seqOf('host-7')).toBe(7);
  expect(index.sizes()).toEqual([
    { mailbox: 'host', count: 3, bytes: 30 },
    { mailbox: 'other', count: 1, bytes: 10 },
  ]);
});

test('what is removed is gone from everything, and a mailbox with it', () => {
  const index = new MailIndex();
  for (let seq = 1; seq <= 1_000; seq++) index.add(mail(seq));
  for (let seq = 1; seq <= 1_000; seq++) if (seq % 100 !== 0) expect(index.remove(seq)?.seq).toBe(seq);
  expect(index.remove(1)).toBeUndefined();
  expect(seqsOf(index, 'host', 350)).toEqual([400, 500, 600, 700, 800, 900, 1_000]);
  expect([index.count, index.bytes, index.seqOf('host-1')]).toEqual([10, 100, undefined]);
  for (let seq = 100; seq <= 1_000; seq += 100) index.remove(seq);
  expect([index.count, index.bytes, index.sizes()]).toEqual([0, 0, []]);
});

test('what leaves while it is walked is not walked over, and stops nothing', () => {
  const index = new MailIndex();
  for (let seq = 1; seq <= 200; seq++) index.add(mail(seq));
  const walked: number[] = [];
  for (const { seq } of index.after('host', 0)) {
    walked.push(seq);
    index.remove(seq);
    index.remove(seq + 1);
  }
  expect(walked).toEqual(Array.from({ length: 100 }, (_, at) => 2 * at + 1));
});
