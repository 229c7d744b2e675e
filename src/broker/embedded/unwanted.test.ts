import { expect, test } from 'vitest';
import { type Present, type Sent, unwantedFor } from './unwanted.js';

const ann = { mailbox: 'ann', role: 'reader' };
const day = 86_400_000;
const sent = (more: Partial<Sent> = {}): Sent => ({ from: ann, sentAtMs: 1_000, expiresAtMs: 2_000, ...more });
const at = (nowMs: number, more: Partial<Present> = {}): Present => ({
  ...{ wallMs: () => nowMs, revokedAtMs: undefined, staleMs: day, isCurrent: () => true },
  ...more,
});

test.each([
  ['a request within its time', 'request', sent(), at(1_500), undefined],
  ['a request past its end, which a host still answers', 'request', sent(), at(2_000 + day), undefined],
  ['a request a day past its end', 'request', sent(), at(2_001 + day), 'stale'],
  ['a request without an end', 'request', sent({ expiresAtMs: undefined }), at(100 * day), undefined],
  ['a reply, a day after it was sent', 'reply', sent({ expiresAtMs: undefined }), at(1_000 + day), undefined],
  ['a reply, later than that', 'reply', sent({ expiresAtMs: undefined }), at(1_001 + day), 'stale'],
  ['a request past its end where room is wanted', 'request', sent(), at(2_061, { expiredMs: 60 }), 'stale'],
  ['the same, not yet past its patience', 'request', sent(), at(2_060, { expiredMs: 60 }), undefined],
  ['a reply where room is wanted', 'reply', sent(), at(2_061, { expiredMs: 60 }), undefined],
  ['a request of who has no key any more', 'request', sent(), at(1_500, { isCurrent: () => false }), 'revoked'],
  ['a reply of who has no key any more', 'reply', sent(), at(1_500, { isCurrent: () => false }), undefined],
  ['what was sent for somebody else', 'reply', sent(), at(1_500, { revokedAtMs: 1_000 }), 'revoked'],
  ['what was sent after that', 'reply', sent(), at(1_500, { revokedAtMs: 999 }), undefined],
] as const)('%s', (_, kind, mail, present, unwanted) => {
  expect(unwantedFor(mail, kind, present)).toBe(unwanted);
});

test('who sent it is asked about as it stands in the message', () => {
  const asked: unknown[] = [];
  unwantedFor(sent(), 'request', at(0, { isCurrent: (from) => asked.push(from) > 0 }));
  expect(asked).toEqual([ann]);
});
