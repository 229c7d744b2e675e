import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { SaidCapabilities } from './client-capabilities.js';
import { EventBudget } from './event-store.js';
import { HTTP_LIMITS } from './http-limits.js';
import { LegacySession } from './legacy-session.js';
import { LegacySessions } from './legacy-sessions.js';

const ann = { id: 'ann', role: undefined, scopes: [] };
const all = { kind: 'all' } as const;

function setUp(sessions = 3) {
  const clock = new FakeClock();
  const limits = { ...HTTP_LIMITS, sessions };
  const table = new LegacySessions(clock, limits);
  const budget = new EventBudget(1_000);
  const open = (id: string, isInitialized = true) => {
    const facts = {
      id,
      principal: ann,
      endpoint: all,
      version: '2025-11-25',
      capabilities: new SaidCapabilities(undefined),
    };
    const session = new LegacySession(facts, clock, limits, budget);
    session.isInitialized = isInitialized;
    clock.advance(1);
    return { session, isAdmitted: table.admit(session) };
  };
  const ids = (...names: string[]) => names.filter((id) => table.find(id, ann, all));
  return { clock, table, open, ids, budget };
}

test('is found by its principal at its endpoint, and by nobody else', () => {
  const { table, open } = setUp();
  const { session } = open('a');
  expect(table.find('a', ann, all)).toBe(session);
  expect(table.find('a', { ...ann, id: 'bob' }, all)).toBeUndefined();
  expect(table.find('a', ann, { kind: 'server', server: 's' })).toBeUndefined();
  expect(table.find('b', ann, all)).toBeUndefined();
});

test('the longest unused makes room; use is what counts, not age', () => {
  const { open, ids } = setUp();
  const { session } = open('a');
  open('b');
  open('c');
  session.touch();
  open('d');
  expect(ids('a', 'b', 'c', 'd')).toEqual(['a', 'c', 'd']);
});

test('one that was never finished goes first, one in use never', () => {
  const { open, ids } = setUp();
  const busy = open('busy', false).session;
  busy.exchanges.set('1', { cancel: () => {}, sessionEnded: () => busy.exchanges.clear() });
  open('old');
  open('half', false);
  open('new');
  expect(ids('busy', 'old', 'half', 'new')).toEqual(['busy', 'old', 'new']);
  open('more');
  expect(ids('busy', 'old', 'new', 'more')).toEqual(['busy', 'new', 'more']);
});

test('when all are in use there is no room', () => {
  const { open, table } = setUp(1);
  const { session } = open('a');
  session.exchanges.set('1', { cancel: () => {}, sessionEnded: () => session.exchanges.clear() });
  expect([open('b').isAdmitted, table.size]).toEqual([false, 1]);
});

test('ends after its idle time, gives everything back, and leaves no timer', () => {
  const { clock, open, table, budget } = setUp();
  const { session } = open('a');
  session.notify('notifications/x', undefined);
  expect(budget.used).toBeGreaterThan(0);
  clock.advance(HTTP_LIMITS.sessionIdleMs - 1);
  expect([table.size, session.signal.aborted]).toEqual([1, false]);
  clock.advance(HTTP_LIMITS.sessionIdleMs / 30);
  expect([table.size, session.signal.aborted, budget.used, clock.pendingTimers]).toEqual([0, true, 0, 0]);
});
