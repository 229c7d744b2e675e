import { expect, test } from 'vitest';
import { FakeClock } from '../kernel/fake-clock.js';
import type { PolicyEvent } from '../policy/policy-events.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import { type HostEvent, HostEvents, hostEventKinds } from './host-events.js';

const opened: PolicyEvent = { kind: 'breaker', from: 'closed', to: 'open', failures: 5 };
const closed: PolicyEvent = { kind: 'breaker', from: 'open', to: 'closed', failures: 0 };
const auth: PolicyEvent = { kind: 'auth', status: 'needed' };
const ready: SupervisorEvent = { kind: 'state', from: 'connecting', to: 'ready', run: 1, atMs: 0, server: 'a' };

function setUp(settle: (event: SupervisorEvent, events: HostEvents) => void = () => {}) {
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const events: HostEvents = new HostEvents(
    clock,
    (event) => settle(event, events),
    (error) => problems.push(error),
  );
  return { clock, events, problems };
}

test('an event has time and server, and reaches listeners of its kind and of every kind', async () => {
  const { clock, events } = setUp();
  await clock.advanceAsync(7);
  const heard: [string, HostEvent][] = [];
  events.on('any', (event) => heard.push(['any', event]));
  events.on('breaker', (event) => heard.push(['breaker', event]));
  events.on('auth', (event) => heard.push(['auth', event]));
  events.emit('a', opened);
  const stamped = { ...opened, atMs: 7, server: 'a' };
  expect(heard).toEqual([
    ['breaker', stamped],
    ['any', stamped],
  ]);
});

test('events of supervisors are in the same stream', () => {
  const { events } = setUp();
  const heard: HostEvent[] = [];
  events.on('any', (event) => heard.push(event));
  events.supervisors.emit('supervisor', ready);
  events.emit('a', auth);
  expect(heard.map(({ kind }) => kind)).toEqual(['state', 'auth']);
});

test('the host reacts before all listeners, and events caused by its reaction follow', () => {
  const settled: string[] = [];
  const { events } = setUp((event, stream) => {
    settled.push(event.kind);
    stream.emit('a', closed);
  });
  const heard: unknown[] = [];
  events.on('any', ({ kind }) => heard.push([kind, settled.length]));
  events.supervisors.emit('supervisor', ready);
  expect(heard).toEqual([
    ['state', 1],
    ['breaker', 1],
  ]);
});

test('an event that a listener causes comes after the current one, for all listeners', () => {
  const { events } = setUp();
  const heard: string[] = [];
  events.on('breaker', () => events.emit('a', auth));
  events.on('any', ({ kind }) => heard.push(kind));
  events.emit('a', opened);
  expect(heard).toEqual(['breaker', 'auth']);
});

test('a listener that throws is reported and does not affect other listeners', () => {
  const { events, problems } = setUp();
  const heard: string[] = [];
  events.on('any', () => {
    throw new Error('mine');
  });
  events.on('any', ({ kind }) => heard.push(kind));
  events.emit('a', opened);
  events.emit('a', auth);
  expect(heard).toEqual(['breaker', 'auth']);
  expect(problems).toHaveLength(2);
});

test('a listener and a report that both throw do not stop the stream, and nothing escapes', () => {
  const events = new HostEvents(
    new FakeClock(),
    () => {},
    (error) => {
      throw error;
    },
  );
  const heard: string[] = [];
  events.on('breaker', () => {
    throw new Error('mine');
  });
  events.on('any', ({ kind }) => heard.push(kind));
  events.emit('a', opened);
  events.supervisors.emit('supervisor', ready);
  expect(heard).toEqual(['breaker', 'state']);
});

test('at most ten thousand events caused by listeners are queued; lost ones are reported once', () => {
  const { events, problems } = setUp();
  const heard = new Map<string, number>();
  events.on('any', ({ kind }) => heard.set(kind, (heard.get(kind) ?? 0) + 1));
  events.on('breaker', () => {
    for (let i = 0; i < 10_050; i++) events.emit('a', auth);
  });
  for (const times of [1, 2]) {
    events.emit('a', opened);
    expect([heard.get('auth'), problems.length]).toEqual([10_000 * times, times]);
  }
  expect(problems[0]).toMatchObject({ code: 'overloaded', details: { reason: 'events', limit: 10_000 } });
});

test('a reaction of the host that throws does not stop the stream', () => {
  const { events } = setUp(() => {
    throw new Error('broken');
  });
  const heard: string[] = [];
  events.on('any', ({ kind }) => heard.push(kind));
  events.supervisors.emit('supervisor', ready);
  events.emit('a', auth);
  expect(heard).toEqual(['state', 'auth']);
});

test('call events are emitted while there is a listener for them or for all, once per listener', () => {
  const { events } = setUp();
  const seen = [events.hasCallListeners];
  const off = events.on('denied', () => {});
  seen.push(events.hasCallListeners);
  off();
  const listener = () => {};
  const offs = [events.on('call', listener), events.on('call', listener), events.on('any', listener)];
  for (const each of offs) {
    seen.push(events.hasCallListeners);
    each();
  }
  seen.push(events.hasCallListeners);
  expect(seen).toEqual([false, false, true, true, true, false]);
});

test('the list of event kinds has each kind once', () => {
  expect(new Set(hostEventKinds).size).toBe(hostEventKinds.length);
  expect(hostEventKinds).toHaveLength(19);
});

test('the record of a call is emitted unchanged, and its hash is not computed on the way', () => {
  const { events } = setUp();
  const heard: HostEvent[] = [];
  events.on('call', (event) => heard.push(event));
  let looks = 0;
  const record: PolicyEvent = {
    kind: 'call',
    requestId: 'r1',
    principal: { id: 'ann', role: undefined },
    tool: 't',
    get argumentsHash() {
      looks++;
      return 'h';
    },
    outcome: 'ok',
    execution: 'executed',
    durationMs: 1,
    attempts: 1,
    fromCache: false,
    run: 1,
  };
  events.emit('a', record);
  expect([looks, heard[0]?.server, heard[0]?.atMs]).toEqual([0, 'a', 0]);
  expect(heard[0]).toMatchObject({ kind: 'call', argumentsHash: 'h' });
});
