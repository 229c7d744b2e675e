import { describe, expect, test } from 'vitest';
import { checkId, mailboxIn, namesOf } from './nats-names.js';

describe('a mailbox', () => {
  const names = namesOf();
  test('is one token of each of its subjects, and found again in it', () => {
    for (const mailbox of ['w1', 'team.a.worker', 'a-b_c.d'])
      for (const subject of [`${names.of(mailbox).cancels}id`, names.of(mailbox).joined])
        expect(mailboxIn(subject, 2)).toBe(mailbox);
  });

  test('shares no subject and no stream with another', () => {
    const boxes = ['a', 'a.b', 'a-b', 'a_b', 'ab', 'a..b', 'a.'].map((mailbox) => names.of(mailbox));
    const all = boxes.flatMap(({ mailbox: _, ...rest }) => Object.values(rest));
    expect(new Set(all).size).toBe(all.length);
    for (const name of boxes.flatMap(({ requestStream, claimStream, replyStream }) => [
      requestStream,
      claimStream,
      replyStream,
    ]))
      expect(name).toMatch(/^[^.*>\s/\\]+$/);
  });

  test.each(['', '*', '>', 'A', 'a b', 'a/b', '.a', 'a~b', 'ä'])('cannot be %j', (mailbox) => {
    expect(() => names.of(mailbox)).toThrow(expect.objectContaining({ code: 'invalid_spec' }));
    expect(mailboxIn(`hostler.cancel.${mailbox.replaceAll('.', '~')}.id`, 2)).toBe(
      mailbox === 'a~b' ? 'a.b' : undefined,
    );
  });
});

test.each(['', '*', 'a.b', 'a b', '>', 'x'.repeat(129)])('an id that is no part of a subject is refused: %j', (id) => {
  expect(() => checkId(id)).toThrow(expect.objectContaining({ code: 'invalid_request' }));
});

test.each(['', 'A', 'a.b', 'a*', '1a'])('a prefix that is no part of a subject is refused: %j', (prefix) => {
  expect(() => namesOf(prefix)).toThrow(expect.objectContaining({ code: 'invalid_spec' }));
});
