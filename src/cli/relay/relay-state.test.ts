import { expect, test } from 'vitest';
import { firstState, type RelayEvent, type RelayState, step, stoppedReason } from './relay-state.js';

const joined = (sinceMs = 0, failures = 0): RelayState => ({ kind: 'joined', failures, sinceMs });
const kindAfter = (state: RelayState, event: RelayEvent, nowMs = 0, isNewer = false) => {
  const [after, effects] = step(state, event, nowMs, isNewer);
  return [after.kind, effects.map((effect) => effect.do)];
};

test.each<[name: string, before: RelayState, event: RelayEvent, nowMs: number, after: string, effects: string[]]>([
  ['a relay connects when it begins', firstState, { kind: 'begun' }, 0, 'connecting', ['connect']],
  [
    'a new connection continues where the last one ended',
    { kind: 'connecting', failures: 2 },
    { kind: 'connected' },
    0,
    'joined',
    ['resume'],
  ],
  ['a lost host is replaced at once', joined(), { kind: 'lost' }, 5_000, 'connecting', ['settle', 'connect']],
  [
    'a host that dies right after its start is a failure',
    joined(),
    { kind: 'lost' },
    4_999,
    'waiting',
    ['settle', 'wake'],
  ],
  ['a host that announces its end is left', joined(), { kind: 'stopping', reason: 'restart' }, 0, 'leaving', []],
  [
    'after a restart no host is needed until the next request',
    { kind: 'leaving', reason: 'restart' },
    { kind: 'lost' },
    0,
    'away',
    ['settle'],
  ],
  [
    'after the end of an idle host no host is needed until the next request',
    { kind: 'leaving', reason: 'idle' },
    { kind: 'lost' },
    0,
    'away',
    ['settle'],
  ],
  [
    'an older relay waits for a newer one to start',
    { kind: 'leaving', reason: 'upgrade' },
    { kind: 'lost' },
    0,
    'away',
    ['settle'],
  ],
  ['the next request starts a host', { kind: 'away' }, { kind: 'request' }, 0, 'connecting', ['connect']],
  ['a request while connecting waits', { kind: 'connecting', failures: 0 }, { kind: 'request' }, 0, 'connecting', []],
  [
    'after hostler down the relay ends',
    { kind: 'leaving', reason: 'down' },
    { kind: 'lost' },
    0,
    'over',
    ['settle', 'refuse', 'exit'],
  ],
  ['the end of an older connection changes nothing', { kind: 'away' }, { kind: 'lost' }, 0, 'away', []],
  ['a timer that is too late changes nothing', joined(), { kind: 'woke' }, 0, 'joined', []],
])('R2 %s', (_name, before, event, nowMs, after, effects) => {
  expect(kindAfter(before, event, nowMs)).toEqual([after, effects]);
});

test('R2 the newer relay starts the next host after an upgrade', () => {
  expect(kindAfter({ kind: 'leaving', reason: 'upgrade' }, { kind: 'lost' }, 0, true)).toEqual([
    'connecting',
    ['settle', 'connect'],
  ]);
});

test('R2 after an upgrade an older relay lets a newer one go first, also with requests that wait', () => {
  const [away, effects] = step({ kind: 'leaving', reason: 'upgrade' }, { kind: 'lost' }, 1_000);
  expect(effects).toEqual([{ do: 'settle' }]);
  const [waiting, wait] = step(away, { kind: 'request' }, 1_000);
  expect([waiting.kind, wait]).toEqual(['waiting', [{ do: 'wake', atMs: 1_100 }]]);
  expect(kindAfter(waiting, { kind: 'woke' }, 1_100)).toEqual(['connecting', ['connect']]);
  expect(kindAfter(away, { kind: 'request' }, 1_100)).toEqual(['connecting', ['connect']]);
});

test('R2 a failure that another attempt cannot change is reported at once', () => {
  const failed = { kind: 'failed', reason: 'no file', isFinal: true } as const;
  const [state, effects] = step({ kind: 'connecting', failures: 0 }, failed, 0);
  expect([state, effects]).toEqual([
    { kind: 'failed', reason: 'no file', retryAtMs: 5_000 },
    [{ do: 'refuse', reason: 'no file' }],
  ]);
  // A later request tries again: the user may have corrected it.
  expect(kindAfter(state, { kind: 'request' }, 5_000)).toEqual(['connecting', ['connect']]);
});

test('R2 backoff: 100 ms doubling, and after 6 failures each request is answered with the reason', () => {
  let state: RelayState = { kind: 'connecting', failures: 0 };
  const waits: number[] = [];
  for (let failures = 1; failures < 6; failures++) {
    const [waiting, [effect]] = step(state, { kind: 'failed', reason: 'why' }, 1_000);
    waits.push((effect as { atMs: number }).atMs - 1_000);
    [state] = step(waiting, { kind: 'woke' }, 2_000);
    expect(state).toEqual({ kind: 'connecting', failures });
  }
  expect(waits).toEqual([100, 200, 400, 800, 1_600]);
  const [failed, effects] = step(state, { kind: 'failed', reason: 'why' }, 0);
  expect(effects).toEqual([{ do: 'refuse', reason: 'why' }]);
  expect(step(failed, { kind: 'request' }, 4_999)[1]).toEqual([{ do: 'refuse', reason: 'why' }]);
  const [again, tries] = step(failed, { kind: 'request' }, 5_000);
  expect([again, tries]).toEqual([{ kind: 'connecting', failures: 5 }, [{ do: 'connect' }]]);
  expect(step(again, { kind: 'failed', reason: 'still' }, 0)[0]).toMatchObject({ kind: 'failed', reason: 'still' });
});

test('R2 requests that wait when Hostler is ended are answered', () => {
  const [, effects] = step({ kind: 'leaving', reason: 'down' }, { kind: 'lost' }, 0);
  expect(effects).toContainEqual({ do: 'refuse', reason: stoppedReason });
});
