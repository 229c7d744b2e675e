import { expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { ListedItem } from '../session/lists.js';
import type { Session } from '../session/session.js';
import { ToolLearner } from './tool-learner.js';

function set(lists: (ListedItem[] | HostError)[]) {
  const clock = new FakeClock();
  const learnt: string[] = [];
  const problems: unknown[] = [];
  let reads = 0;
  let begun = 0;
  let closes = 0;
  const session = {
    closedBy: undefined,
    list: async () => {
      reads++;
      // A reading is told of before the server is asked.
      expect(begun).toBe(reads);
      const next = lists.shift() ?? [];
      if (next instanceof HostError) throw next;
      return { items: next };
    },
    close: async () => {
      closes++;
    },
  } as unknown as Session;
  const learner = new ToolLearner(
    clock,
    () => {
      begun++;
      return ({ items }) => learnt.push(items.map(({ key }) => key).join());
    },
    (error) => problems.push(error),
  );
  return { clock, learner, session, learnt, problems, reads: () => reads, closes: () => closes };
}

const tool = (key: string): ListedItem => ({ key, raw: Buffer.from('{}') });

test('the tools are known when it has begun', async () => {
  const { learner, session, learnt } = set([[tool('a'), tool('b')]]);
  await learner.begin(session, { deadlineAtMs: 1_000 });
  expect(learnt).toEqual(['a,b']);
});

test('a server that cannot list its tools is usable; one that is lost is closed', async () => {
  const half = set([new HostError('protocol_error', 'fetch failed', { rpcCode: -32603 })]);
  await half.learner.begin(half.session, { deadlineAtMs: 1_000 });
  expect([half.problems.length, half.closes()]).toEqual([1, 0]);
  const lost = set([new HostError('transport', 'gone')]);
  await expect(lost.learner.begin(lost.session, { deadlineAtMs: 1_000 })).rejects.toMatchObject({ code: 'transport' });
  expect(lost.closes()).toBe(1);
});

test('many announcements are one reading, and one more when they go on meanwhile', async () => {
  const { clock, learner, session, learnt, reads } = set([[tool('a')], [tool('b')], [tool('c')]]);
  await learner.begin(session, { deadlineAtMs: 1_000 });
  for (let i = 0; i < 50; i++) learner.changed();
  await clock.advanceAsync(100);
  expect([learnt.at(-1), reads()]).toEqual(['b', 2]);
  learner.changed();
  await clock.advanceAsync(100);
  expect([learnt.at(-1), reads()]).toEqual(['c', 3]);
});

test('a reading that fails leaves what was known, and the next announcement is heard', async () => {
  const { clock, learner, session, learnt, problems } = set([
    [tool('a')],
    new HostError('timeout', 'late'),
    [tool('b')],
  ]);
  await learner.begin(session, { deadlineAtMs: 1_000 });
  learner.changed();
  await clock.advanceAsync(100);
  expect([learnt, problems.length]).toEqual([['a'], 1]);
  learner.changed();
  await clock.advanceAsync(100);
  expect(learnt).toEqual(['a', 'b']);
});
