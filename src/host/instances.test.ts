import { describe, expect, test } from 'vitest';
import { managedSession } from '../../test/fakes/managed-session.js';
import { FakeServer } from '../../test/fakes/supervised-server.js';
import { Emitter } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Session } from '../session/session.js';
import { CorrelatedFailures } from '../supervisor/correlated-failures.js';
import { gateAfter, StartGate } from '../supervisor/start-gate.js';
import { Supervisor } from '../supervisor/supervisor.js';
import type { SupervisorEvents } from '../supervisor/supervisor-events.js';
import { Instances, instancesMax, instancesPerServerMax, subscriptionTargets } from './instances.js';
import type { CallTarget } from './managed-server.js';
import type { Supervise } from './supervise.js';

const minute = 60_000;
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Instances of servers that open at once and count the open runs. */
function setUp(entry: Record<string, unknown> = {}) {
  const clock = new FakeClock();
  const server = new FakeServer(clock);
  let listeners = 0;
  const supervise: Supervise = ({ name, isLazy }, predecessor, ofClient) => {
    const events = new Emitter<SupervisorEvents>();
    const gate = new StartGate(clock);
    if (ofClient) events.on('supervisor', ofClient.onEvent);
    const supervisor = new Supervisor<Session>({
      ...{ name, clock, events, isLazy },
      random: () => 0.5,
      gate: predecessor ? gateAfter(predecessor.ended, gate) : gate,
      guard: new CorrelatedFailures(clock),
      connect: (...args) => server.connect(...args) as unknown as Promise<Session>,
      verify: () => Promise.resolve(true),
    });
    listeners++;
    return { supervisor, auth: undefined, unlisten: () => listeners-- };
  };
  const problems: unknown[] = [];
  const instances: Instances = new Instances({
    clock,
    supervise,
    findServer: (name) => (name === 'a' ? base : undefined),
    onProblem: (error) => problems.push(error),
  });
  const baseOf = (name: string) => managedSession(name, {}, clock, { isolation: 'per-client', ...entry });
  const base = baseOf('a');
  const use = async (client: string, of = base, owner = 'key') => {
    const target = instances.targetOf(of, client, owner);
    target.enter();
    await target.supervisor.acquire(clock.nowMs() + minute);
    return target;
  };
  return { clock, server, instances, base, baseOf, use, problems, listeners: () => listeners };
}

test('E4 all clients of a shared server get the server itself; without a client there is no instance', () => {
  const { instances, base } = setUp();
  expect(() => instances.targetOf(base, undefined, 'key')).toThrow(
    expect.objectContaining({ code: 'invalid_request', details: expect.objectContaining({ field: 'instance' }) }),
  );
  const shared = setUp({ isolation: 'shared' });
  expect(shared.instances.targetOf(shared.base, 'ann', 'key')).toBe(shared.base);
  expect(shared.instances.targetOf(shared.base, undefined, 'key')).toBe(shared.base);
});

test('each client has its own instance, the same each time', async () => {
  const { instances, server, use, base } = setUp();
  const [ann, bob, again] = [await use('ann'), await use('bob'), await use('ann')];
  expect([ann === again, ann === bob, server.opened, instances.countOf('a')]).toEqual([true, false, 2, 2]);
  expect(base.supervisor.current).toBeUndefined();
});

test('E4 two principals that name the same client never share an instance', async () => {
  const { instances, server, base, use } = setUp();
  const [ann, bob] = [await use('client', base, 'ann'), await use('client', base, 'bob')];
  expect([ann === bob, await use('client', base, 'ann'), server.opened]).toEqual([false, ann, 2]);
  const servers = { get: () => base } as unknown as Parameters<typeof subscriptionTargets>[0];
  const targetOf = subscriptionTargets(servers, instances, new FakeClock(), () => undefined);
  const keys = ['ann', 'bob'].map((owner) => targetOf('a', 'client', owner).key);
  expect(new Set(keys).size).toBe(2);
  instances.end('client');
  expect(instances.countOf('a')).toBe(0);
});

test('an instance that is idle for its keep-alive time ends, and the next use creates a new one', async () => {
  const { clock, server, instances, use } = setUp({ keepAlive: '1m' });
  const first = await use('ann');
  clock.advance(5 * minute);
  expect(instances.countOf('a')).toBe(1);
  first.leave();
  clock.advance(minute - 1);
  expect([instances.countOf('a'), server.live]).toEqual([1, 1]);
  clock.advance(1);
  await settle();
  expect([instances.countOf('a'), server.live]).toEqual([0, 0]);
  expect(await use('ann')).not.toBe(first);
});

test('E4 the next instance of a client starts when the earlier one has ended, and ends by idleness too', async () => {
  const { clock, server, instances, use } = setUp({ keepAlive: '1m' });
  server.next = () => ({ closeMs: 500 });
  const first = await use('ann');
  first.leave();
  clock.advance(minute);
  const second = use('ann');
  await settle();
  expect([server.opened, server.live]).toEqual([1, 1]);
  clock.advance(500);
  (await second).leave();
  await settle();
  expect([server.opened, server.liveMax]).toEqual([2, 1]);
  clock.advance(minute + 500);
  await settle();
  expect([instances.countOf('a'), server.live]).toEqual([0, 0]);
});

test('E4 a call that waits for its instance is served by the next run after a reload', async () => {
  const { clock, server, instances, use } = setUp();
  (await use('bob')).leave();
  server.next = (run) => (run === 1 ? { afterMs: 1_000 } : {});
  const waiting = use('ann');
  await settle();
  await instances.reload('a');
  expect(await waiting).toBe(await use('ann'));
  expect([server.starts, instances.countOf('a'), server.live]).toEqual([3, 1, 1]);
  clock.advance(1_000);
  await settle();
  expect(server.live).toBe(1);
});

test.each([
  [true, 'reconnecting', true],
  [false, 'server_stopped', false],
])(
  'E4 a call that waits when its server is removed (replaced by another: %s) gets %s',
  async (isReplaced, code, retryable) => {
    const { server, instances, base, use } = setUp();
    server.next = () => ({ afterMs: 1_000 });
    const waiting = use('ann');
    await settle();
    void base.supervisor.dispose(isReplaced);
    await instances.endOf('a');
    await expect(waiting).rejects.toMatchObject({ code, retryable, details: { execution: 'not_executed' } });
  },
);

test('an ended instance no longer listens for the tokens of its server', async () => {
  const { instances, use, listeners } = setUp();
  await use('ann');
  await use('bob');
  expect(listeners()).toBe(2);
  instances.end('ann');
  expect(listeners()).toBe(1);
  await instances.close();
  expect(listeners()).toBe(0);
});

describe('E4 the instance of a client with subscriptions', () => {
  test('starts again when its server was reloaded, and the new one does not end by idleness', async () => {
    const { clock, server, instances, base, problems } = setUp({ keepAlive: '1m' });
    const release = instances.hold(base, 'ann', 'key');
    const second = instances.hold(base, 'ann', 'key');
    await instances.targetOf(base, 'ann', 'key').supervisor.acquire(clock.nowMs() + minute);
    await instances.endOf('a');
    await settle();
    expect([server.opened, server.live, instances.countOf('a')]).toEqual([2, 1, 1]);
    clock.advance(5 * minute);
    await settle();
    release();
    clock.advance(5 * minute);
    await settle();
    expect(server.live).toBe(1);
    second();
    clock.advance(minute);
    await settle();
    expect([server.opened, server.live, instances.countOf('a'), problems]).toEqual([2, 0, 0, []]);
  });

  test('does not start again when its client has disconnected or its server was removed', async () => {
    const { clock, server, instances, base, baseOf } = setUp();
    const removed = baseOf('b');
    for (const each of [base, removed]) {
      const release = instances.hold(each, 'ann', 'key');
      await instances.targetOf(each, 'ann', 'key').supervisor.acquire(clock.nowMs() + minute);
      if (each === base) instances.end('ann');
      await instances.endOf(each.definition.name);
      await settle();
      expect([server.live, instances.countOf(each.definition.name)]).toEqual([0, 0]);
      release();
    }
  });

  test('starts again when its stopped server is started', async () => {
    const { clock, server, instances, base, problems } = setUp();
    instances.hold(base, 'ann', 'key');
    await instances.targetOf(base, 'ann', 'key').supervisor.acquire(clock.nowMs() + minute);
    await base.supervisor.stop();
    await instances.endOf('a');
    expect([server.live, problems]).toEqual([0, []]);
    base.supervisor.start();
    instances.resume('a');
    await settle();
    expect([server.live, instances.countOf('a')]).toEqual([1, 1]);
  });
});

test('a server has a maximum of instances; one that ends makes room', async () => {
  const { instances, use } = setUp();
  for (let i = 0; i < instancesPerServerMax; i++) await use(`client ${i}`);
  await expect(use('one more')).rejects.toMatchObject({
    code: 'overloaded',
    details: { reason: 'instances', limit: instancesPerServerMax, execution: 'not_executed' },
  });
  instances.end('client 0');
  await use('one more');
  expect(instances.countOf('a')).toBe(instancesPerServerMax);
});

test('all servers together have a maximum of instances; instances without a run and without calls are evicted', async () => {
  const { instances, base, baseOf, use } = setUp();
  const bases = Array.from({ length: instancesMax / instancesPerServerMax }, (_, i) => baseOf(`s${i}`));
  for (const each of bases) for (let i = 0; i < instancesPerServerMax; i++) await use(`client ${i}`, each);
  await expect(use('ann')).rejects.toMatchObject({ code: 'overloaded' });
  instances.end('client 0');
  // Requested and never used.
  for (const each of bases) instances.targetOf(each, 'client 0', 'key');
  expect(instances.targetOf(base, 'ann', 'key')).not.toBe(base);
});

test('E4 idle instances of a key with many clients are evicted for other keys; those in use are not', async () => {
  const { instances, server, use } = setUp();
  for (let i = 0; i < instancesPerServerMax; i++) {
    const target = await use(`client ${i}`, undefined, 'greedy');
    if (i > 0) target.leave();
  }
  for (const client of ['ann', 'bob']) await use(client, undefined, client);
  await settle();
  expect([instances.countOf('a'), server.live]).toEqual([instancesPerServerMax, instancesPerServerMax]);
  // One more client of the same key evicts none of its instances.
  await expect(use('one more', undefined, 'greedy')).rejects.toMatchObject({ code: 'overloaded' });
  // The oldest idle instances are gone, and the instance in use is not.
  for (const client of ['client 1', 'client 2']) instances.end(client);
  expect(instances.countOf('a')).toBe(instancesPerServerMax);
  instances.end('client 0');
  expect(instances.countOf('a')).toBe(instancesPerServerMax - 1);
});

test('an instance ends with its client, its server and the host, and they wait for its end', async () => {
  const { clock, instances, server, baseOf, use } = setUp();
  server.next = () => ({ closeMs: 10 });
  const other = baseOf('b');
  for (const client of ['ann', 'bob', 'cy']) await use(client);
  await use('ann', other);
  instances.end('ann');
  expect([instances.countOf('a'), instances.countOf('b')]).toEqual([2, 0]);
  await use('bob', other);
  const gone = instances.endOf('a');
  expect([instances.countOf('a'), instances.countOf('b')]).toEqual([0, 1]);
  const order: string[] = [];
  void gone.then(() => order.push(`${server.live} live`));
  await settle();
  expect(order).toEqual([]);
  clock.advance(10);
  await gone;
  expect([order, server.opened]).toEqual([['1 live'], 5]);
});

test('after the host is closed, or while the server is stopped, there is no instance', async () => {
  const { instances, base, use } = setUp();
  await base.supervisor.stop();
  await expect(use('ann')).rejects.toMatchObject({ code: 'server_stopped' });
  const closed = setUp();
  await closed.use('ann');
  await closed.instances.close();
  expect([closed.server.live, instances.countOf('a')]).toEqual([0, 0]);
  await expect(closed.use('ann')).rejects.toBeInstanceOf(HostError);
});

test('an instance that fails keeps its history', async () => {
  const { instances, server, use, clock } = setUp();
  server.next = () => ({ error: new HostError('connect_failed', 'no', { reason: 'exit' }) });
  const used = use('ann').catch((error: HostError) => error.code);
  await settle();
  clock.advance(6_000);
  expect([typeof (await used), instances.countOf('a')]).toEqual(['string', 1]);
});

test('W13 each instance has its own breaker, which ends with its run or with the instance', async () => {
  const { base, server, instances, use, clock } = setUp({ breaker: { threshold: 1 } });
  const bob = await use('bob');
  const ann = await use('ann');
  const circuitOf = ({ circuit }: CallTarget) => circuit.breaker.circuit(clock.nowMs());
  const lose = ({ circuit: { breaker } }: CallTarget) => {
    const admission = breaker.admit(clock.nowMs());
    if (admission.admitted) breaker.failed(admission.ticket, clock.nowMs(), 'loss');
  };
  lose(ann);
  expect([ann, bob, base].map(circuitOf)).toEqual(['open', 'closed', 'closed']);
  expect(base.circuitStatus(clock.nowMs()).circuit).toBe('open');
  // The supervisor replaces a lost run: the breaker of the next run starts from zero.
  server.connection?.die();
  expect([circuitOf(ann), base.circuitStatus(clock.nowMs()).circuit]).toEqual(['closed', 'closed']);
  lose(bob);
  const timers = clock.pendingTimers;
  instances.end('bob');
  await settle();
  expect([base.circuitStatus(clock.nowMs()).circuit, clock.pendingTimers < timers]).toEqual(['closed', true]);
});
