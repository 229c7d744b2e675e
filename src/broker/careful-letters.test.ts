import { expect, test } from 'vitest';
import { MemoryJournal } from '../../test/fakes/memory-journal.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { carefulLetters } from './careful-letters.js';
import { keyKeptMsMin } from './ports.js';

function rig() {
  const journal = new MemoryJournal();
  const clock = new FakeClock();
  const revived: number[] = [];
  const letters = carefulLetters({
    letters: {
      list: async () => [],
      revive: async (seq) => revived.push(seq) > 0 && seq !== 404,
      drop: async () => true,
    },
    calls: async () => [{ seq: 7, mailbox: 'w', id: 'k', sentAtMs: clock.date().getTime() - aged.ms }],
    ...{ journal, clock },
  });
  const aged = { ms: 0 };
  const claim = () => {
    const rememberUntil = new Date(clock.date().getTime() + 86_400_000);
    return journal.claim({ mailbox: 'w', key: 'k', hash: 'h', rememberUntil, isRepeatable: false });
  };
  return { letters, revived, aged, claim };
}

test('B10 a letter so young that its key would be remembered is put back', async () => {
  const { letters, revived, aged } = rig();
  aged.ms = keyKeptMsMin - 1;
  expect(await letters.revive(7)).toBe(true);
  expect(revived).toEqual([7]);
});

test('B10 a letter whose key is forgotten by now is put back only for who says that it may run again', async () => {
  const { letters, revived, aged } = rig();
  aged.ms = keyKeptMsMin;
  const refused = await letters.revive(7).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(HostError);
  expect(refused).toMatchObject({ code: 'outcome_uncertain', details: { reason: 'key_forgotten' } });
  expect((refused as HostError).hint).toContain('letters replay 7 --force');
  expect(revived).toEqual([]);
  expect(await letters.revive(7, { isForced: true })).toBe(true);
  expect(revived).toEqual([7]);
});

test('B10 a letter whose key is remembered is put back, however old: the journal answers it', async () => {
  const { letters, revived, aged, claim } = rig();
  await claim();
  aged.ms = 10 * keyKeptMsMin;
  expect(await letters.revive(7)).toBe(true);
  expect(revived).toEqual([7]);
});

test('B10 where the journal is another process’s, nobody knows, however young it is', async () => {
  const clock = new FakeClock();
  const letters = carefulLetters({
    letters: { list: async () => [], revive: async () => true, drop: async () => true },
    calls: async () => [{ seq: 7, mailbox: 'w', id: 'k', sentAtMs: clock.date().getTime() }],
    ...{ journal: undefined, clock },
  });
  await expect(letters.revive(7)).rejects.toMatchObject({ details: { reason: 'key_forgotten' } });
  expect(await letters.revive(7, { isForced: true })).toBe(true);
});

test('a letter that is not there is not asked about', async () => {
  const { letters } = rig();
  expect(await letters.revive(404)).toBe(false);
});
