import { expect, test } from 'vitest';
import { pack, unpack } from './store-messages.js';
import type { Answer, Operation } from './store-words.js';

const letter = (id: string) => ({
  ...{ to: 'host', from: { mailbox: 'w', role: undefined }, id, kind: 'reply' as const, sentAtMs: 1 },
  ...{ expiresAtMs: undefined, body: Buffer.from(`body of ${id}`) },
});

const operations: Operation[] = [
  { op: 'put', mail: letter('a') },
  { op: 'remove', seq: 3 },
  { op: 'finish', mailbox: 'w', key: 'k', reply: Buffer.alloc(0) },
  { op: 'put', mail: { ...letter('b'), body: Buffer.alloc(0) } },
  { op: 'finish', mailbox: 'w', key: 'k', reply: Buffer.from('the reply') },
];
const answers: Answer[] = [
  { seq: 1, isNew: true },
  { mails: [1, 2].map((seq) => ({ ...letter(`m${seq}`), seq, deliveries: 0 })) },
  { claimed: { kind: 'done', reply: Buffer.from('kept') } },
  { claimed: { kind: 'mine' } },
  { revived: { ...letter('r'), seq: 9, deliveries: 0 } },
  { revived: undefined },
  { mails: [] },
];

test.each([
  ['operations', operations],
  ['answers', answers],
] as const)('%s come out as they went in, bodies and empty ones included, from one buffer', (_what, given) => {
  const before = structuredClone(given);
  const { items, bytes } = pack<Operation | Answer>(given);
  // As it is on the other side.
  const there = structuredClone({ items, bytes }, { transfer: [bytes.buffer as ArrayBuffer] });
  expect(bytes.byteLength).toBe(0);
  expect(unpack(there)).toEqual(given);
  // Whoever gave them has them still.
  expect(structuredClone(given)).toEqual(before);
});

test('what travels has no body in it but the one buffer, as long as all of them', () => {
  const { items, bytes } = pack(operations);
  expect(bytes.toString()).toBe([...Buffer.from('body of athe reply')].join(','));
  expect(JSON.stringify(items)).not.toContain('Buffer');
});
