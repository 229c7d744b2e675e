import { expect, test } from 'vitest';
import { parseServerDefinition } from '../config/server-definition.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Session } from '../session/session.js';
import type { Snapshot } from '../supervisor/snapshot.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import { ManagedServer } from './managed-server.js';
import { type StatusRow, statusRows } from './status.js';

const resting: Snapshot = {
  ...{ server: 'a', state: 'registered', isOff: false, sinceMs: 0, run: 0, restarts: 0, reason: undefined },
  ...{ nextProbeAtMs: undefined, retryAtMs: undefined, ejected: false, isProven: false, waiting: 0 },
  ...{ lastError: undefined, lastSuccessAtMs: undefined },
};

/** The row of a server with this part of a snapshot, 10 s after the clock began at noon. */
function rowOf(part: Partial<Snapshot>, openSinceMs?: number, throttledForMs?: number, entry: object = {}): StatusRow {
  const clock = new FakeClock(0, new Date('2026-01-01T12:00:00Z'));
  clock.advance(10_000);
  const connection = { channel: { kind: 'memory', counters: {} }, facts: { version: '2025-11-25' } };
  const supervisor = {
    snapshot: () => ({ ...resting, ...part }),
    current: openSinceMs === undefined ? undefined : { connection, run: 1, sinceMs: openSinceMs },
  } as unknown as Supervisor<Session>;
  const hold = { enter() {}, leave() {} };
  const managed = new ManagedServer(
    parseServerDefinition('a', { command: 'a', ...entry }, true),
    supervisor,
    hold,
    clock,
  );
  managed.learn(
    [
      { key: 'echo', raw: Buffer.from('{"name":"echo"}') },
      { key: '', raw: Buffer.from('{}') },
    ],
    () => true,
  );
  const [row] = statusRows({
    clock,
    registry: {
      list: () => [{ name: 'a' } as never],
      held: () => ({ binding: 1, call: 2 }),
    },
    serverOf: () => managed,
    cache: { entriesOf: () => 0 },
    pins: { countsOf: () => ({ changed: 1, reworded: 2 }) },
    listings: { notesOf: () => ['1 tool repaired'] },
    connector: { escapedOf: () => 0, clean: (text) => text },
    instances: { countOf: () => 0 },
    serverThrottle: { leftMs: () => throttledForMs },
    routing: { unroutedOf: (server) => ({ count: 1, templates: [{ template: server, reason: 'too_many' }] }) },
  });
  return row as StatusRow;
}

test('a tool without a name is not counted: it cannot be called', () => {
  expect(rowOf({}).tools).toBe(1);
});

test('times are given as wall clock times, and as ages on the monotonic clock', () => {
  const row = rowOf(
    {
      ...{ state: 'ready', sinceMs: 4_000, run: 1, lastSuccessAtMs: 9_500 },
      lastError: { code: 'transport', message: 'gone', atMs: 1_000 },
    },
    3_000,
  );
  expect(row).toMatchObject({
    ...{ since: '2026-01-01T12:00:04.000Z', forMs: 6_000, uptimeMs: 7_000, active: true },
    ...{ lastSuccessAt: '2026-01-01T12:00:09.500Z', lastSuccessAgoMs: 500, protocolVersion: '2025-11-25' },
    lastError: { code: 'transport', message: 'gone', at: '2026-01-01T12:00:01.000Z', agoMs: 9_000 },
    ...{ refCount: 3, leases: { bindings: 1, calls: 2 } },
  });
});

test('E9 the templates that a gateway does not route are named', () => {
  expect(rowOf({}).unroutedTemplates).toEqual({ count: 1, templates: [{ template: 'a', reason: 'too_many' }] });
});

test.each([
  [{}, 'changed and blocked'],
  [{ pins: 'warn' }, 'changed'],
])('with %j a changed tool has one note, which ends with the command', (entry, what) => {
  expect(rowOf({}, undefined, undefined, entry).notes).toEqual([
    `1 tool ${what}: hostler approve a`,
    '2 tools with new wording, which is not shown to clients: hostler approve a',
    '1 tool repaired',
  ]);
});

test('the next probe is shown as wall time and as a delay, and is never in the past', () => {
  expect(rowOf({ state: 'parked', nextProbeAtMs: 70_000 })).toMatchObject({
    ...{ nextProbeAt: '2026-01-01T12:01:10.000Z', nextProbeInMs: 60_000, ejected: false, active: false },
  });
  expect(rowOf({ state: 'parked', nextProbeAtMs: 9_000 })).toMatchObject({
    ...{ nextProbeAt: '2026-01-01T12:00:09.000Z', nextProbeInMs: 0 },
  });
});

test('unknown values, and values of a run when there is none, are undefined', () => {
  const { uptimeMs, protocolVersion, pid, stderrTail, nextProbeAt, nextProbeInMs, lastError, lastSuccessAt, ...row } =
    rowOf({});
  expect([uptimeMs, protocolVersion, pid, stderrTail, nextProbeAt, nextProbeInMs, lastError, lastSuccessAt]).toEqual(
    Array(8).fill(undefined),
  );
  expect(row).toMatchObject({ state: 'registered', transport: 'stdio', authIdentity: undefined, running: 0, queue: 0 });
});

test('W11 a server that asked for fewer requests is shown as throttled, and for how long', () => {
  expect(rowOf({ state: 'ready' }, 3_000, 1_500).throttledForMs).toBe(1_500);
  expect(rowOf({ state: 'ready' }, 3_000).throttledForMs).toBeUndefined();
});
