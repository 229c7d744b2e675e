import { expect, test } from 'vitest';
import { FakeClock } from '../../../kernel/fake-clock.js';
import type { Principal } from '../../../policy/operation.js';
import { DeclaredCapabilities } from '../../bridge/client-capabilities.js';
import { HTTP_LIMITS } from '../../http/http-limits.js';
import type { SseStream } from '../../http/sse-stream.js';
import { EventBudget } from './event-stream.js';
import { LegacySession } from './http-session.js';
import { SessionTable } from './session-table.js';

const ann = { id: 'ann', role: undefined, scopes: [] };
const all = { kind: 'all' } as const;

function setUp(sessions = 3) {
  const clock = new FakeClock();
  const limits = { ...HTTP_LIMITS, sessions };
  const table = new SessionTable(clock, limits);
  const budget = new EventBudget(1_000);
  const open = (id: string, isInitialized = true, principal: Principal = ann) => {
    const facts = {
      id,
      principal,
      endpoint: all,
      version: '2025-11-25',
      capabilities: new DeclaredCapabilities(undefined),
    };
    const session = new LegacySession(facts, clock, limits, budget);
    clock.advance(1);
    const isAdmitted = table.admit(session);
    if (isInitialized) session.touch();
    return { session, isAdmitted };
  };
  /** Opens a request of the session, which stays open until `answer`. */
  const use = (session: LegacySession) => {
    session.touch();
    session.exchanges.set('1', { cancel: () => session.exchanges.clear() });
  };
  const answer = (session: LegacySession) => {
    session.exchanges.clear();
    session.touch();
  };
  const ids = (...names: string[]) => names.filter((id) => table.find(id, ann, all));
  return { clock, table, open, use, answer, ids, budget };
}

test('a session is found only by its own principal at its endpoint', () => {
  const { table, open } = setUp();
  const { session } = open('a');
  expect(table.find('a', ann, all)).toBe(session);
  expect(table.find('a', { ...ann, id: 'bob' }, all)).toBeUndefined();
  expect(table.find('a', ann, { kind: 'server', server: 's' })).toBeUndefined();
  expect(table.find('b', ann, all)).toBeUndefined();
});

test('W17 the session that was unused for longest is evicted; its age does not matter', () => {
  const { open, ids } = setUp();
  const { session } = open('a');
  open('b');
  open('c');
  session.touch();
  open('d');
  expect(ids('a', 'b', 'c', 'd')).toEqual(['a', 'c', 'd']);
});

test('W17 a session with an open request is not evicted before the request is answered', () => {
  const { open, use, answer, ids } = setUp();
  const [a, b] = [open('a').session, open('b').session];
  open('c');
  use(a);
  use(b);
  open('d');
  expect(ids('a', 'b', 'c', 'd')).toEqual(['a', 'b', 'd']);
  answer(b);
  answer(a);
  open('e');
  open('f');
  expect(ids('a', 'b', 'd', 'e', 'f')).toEqual(['a', 'e', 'f']);
});

test('W17 a session that is being opened is not evicted; an older or newer unused session is', () => {
  const { open, ids } = setUp();
  open('old');
  open('opening', false);
  open('new');
  open('d', false);
  expect(ids('old', 'opening', 'new', 'd')).toEqual(['opening', 'new', 'd']);
  open('e', false);
  expect(ids('opening', 'new', 'd', 'e')).toEqual(['opening', 'd', 'e']);
  expect([open('f').isAdmitted, ids('opening', 'd', 'e', 'f')]).toEqual([false, ['opening', 'd', 'e']]);
});

test('W17 a session without a message after initialize is protected for its grace time only', () => {
  const { clock, open, ids } = setUp();
  open('silent', false);
  clock.advance(HTTP_LIMITS.openingMs - 10);
  open('b', false);
  open('c', false);
  expect(open('d').isAdmitted).toBe(false);
  clock.advance(10);
  expect([open('e').isAdmitted, ids('silent', 'b', 'c', 'e')]).toEqual([true, ['b', 'c', 'e']]);
});

test('W17 after its grace time a session is evicted in the order of use, like any other', () => {
  const { clock, open, ids } = setUp();
  const { session } = open('a');
  open('silent', false);
  open('c');
  clock.advance(HTTP_LIMITS.openingMs);
  session.touch();
  open('d');
  open('e');
  expect(ids('a', 'silent', 'c', 'd', 'e')).toEqual(['a', 'd', 'e']);
});

test('W17 when all sessions are in use, none is evicted', () => {
  const { open, use, table } = setUp(1);
  use(open('a').session);
  expect([open('b').isAdmitted, table.size]).toEqual([false, 1]);
});

test('W17 all clients that open sessions at once succeed while there are unused sessions', () => {
  const { open, table } = setUp(100);
  for (let i = 0; i < 100; i++) open(`abandoned ${i}`);
  const opened = Array.from({ length: 50 }, (_, i) => open(`new ${i}`, false));
  for (const { session } of opened) session.touch();
  expect(opened.filter(({ session, isAdmitted }) => !isAdmitted || session.isOver)).toEqual([]);
  expect(table.size).toBe(100);
});

test('W17 while more than half of the table is in use, a session ends after 5 minutes without use', () => {
  const { clock, open, use, table, ids } = setUp(4);
  const sweepMs = HTTP_LIMITS.sessionIdleMs / 30;
  open('a');
  open('b');
  clock.advance(HTTP_LIMITS.crowdedIdleMs + sweepMs);
  // Two of four are not more than half.
  expect(table.size).toBe(2);
  use(open('busy').session);
  open('fresh');
  clock.advance(sweepMs);
  expect(ids('a', 'b', 'busy', 'fresh')).toEqual(['busy', 'fresh']);
});

test('a session ends after its idle time, releases everything, and leaves no timer', () => {
  const { clock, open, table, budget } = setUp();
  const { session } = open('a');
  const stream = session.newStream();
  stream.attach({ isOpen: true, write: () => true, end: () => {} } as unknown as SseStream);
  stream.send(['{}']);
  expect(budget.used).toBeGreaterThan(0);
  clock.advance(HTTP_LIMITS.sessionIdleMs - 1);
  expect([table.size, session.signal.aborted]).toEqual([1, false]);
  clock.advance(HTTP_LIMITS.sessionIdleMs / 30);
  expect([table.size, session.signal.aborted, budget.used, clock.pendingTimers]).toEqual([0, true, 0, 0]);
});

test('X19 a principal that opens session after session ends its own, not those of others', () => {
  const { table, open, ids } = setUp(4);
  const eve = { ...ann, id: 'eve' };
  open('honest');
  open('opening', false);
  for (let i = 0; i < 20; i++) expect(open(`e${i}`, true, eve).isAdmitted).toBe(true);
  expect([ids('honest', 'opening'), table.size]).toEqual([['honest', 'opening'], 4]);
});

test('X19 W17 sessions that are opened and never used lock out only their own principal', () => {
  const { table, open, ids } = setUp(4);
  const eve = { ...ann, id: 'eve' };
  const admitted = Array.from({ length: 20 }, (_, i) => open(`e${i}`, false, eve).isAdmitted);
  expect(admitted.filter(Boolean)).toHaveLength(4);
  // Eve may keep half of the table, no more.
  expect([open('a').isAdmitted, open('b', false).isAdmitted]).toEqual([true, true]);
  expect([open('e20', false, eve).isAdmitted, open('c').isAdmitted]).toEqual([false, true]);
  expect([ids('a', 'b', 'c'), table.size]).toEqual([['b', 'c'], 4]);
});

test('X19 W17 sessions that are all in use lock out only their own principal', () => {
  const { table, open, use, ids } = setUp(4);
  const eve = { ...ann, id: 'eve' };
  for (let i = 0; i < 4; i++) use(open(`e${i}`, true, eve).session);
  expect(open('e4', true, eve).isAdmitted).toBe(false);
  for (const id of ['a', 'b']) {
    const { session, isAdmitted } = open(id);
    use(session);
    expect(isAdmitted).toBe(true);
  }
  // Eve may keep half of the table, and the other half is in use.
  expect([open('c').isAdmitted, open('e5', true, eve).isAdmitted]).toEqual([false, false]);
  const left = ['e0', 'e1', 'e2', 'e3'].filter((id) => table.find(id, eve, all));
  expect([left, ids('a', 'b'), table.size]).toEqual([['e2', 'e3'], ['a', 'b'], 4]);
});

test('W17 the count of a principal decreases when its sessions end', () => {
  const { table, open } = setUp(4);
  const eve = { ...ann, id: 'eve' };
  for (let i = 0; i < 3; i++) table.end(open(`gone ${i}`, true, eve).session);
  open('a');
  for (let i = 0; i < 3; i++) open(`b ${i}`, true, { ...ann, id: 'bob' });
  // Eve has no sessions now, so the oldest session of all is evicted for her.
  expect([open('e', true, eve).isAdmitted, table.find('a', ann, all)]).toEqual([true, undefined]);
});
