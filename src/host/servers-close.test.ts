import { expect, test } from 'vitest';
import { FakeServer } from '../../test/fakes/supervised-server.js';
import { serverMarks } from '../catalog/store/server-marks.js';
import { parseServerDefinition } from '../config/server-definition.js';
import { deferred } from '../kernel/deferred.js';
import { Emitter } from '../kernel/emitter.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Session } from '../session/session.js';
import { CorrelatedFailures } from '../supervisor/correlated-failures.js';
import { gateAfter, StartGate } from '../supervisor/start-gate.js';
import { Supervisor } from '../supervisor/supervisor.js';
import { Servers } from './servers.js';
import type { Supervise, Supervised } from './supervise.js';

test('a server whose end fails, at once or later, is reported when all others have ended', async () => {
  const ended: string[] = [];
  const ends: Record<string, () => Promise<void>> = {
    a: () => {
      throw new Error('at once');
    },
    b: () => Promise.reject(new Error('later')),
    c: async () => {
      await new Promise((resolve) => setImmediate(resolve));
      ended.push('c');
    },
  };
  const servers = new Servers({
    clock: new FakeClock(),
    supervise: ({ name }) => ({ supervisor: { dispose: ends[name] }, auth: undefined }) as unknown as Supervised,
    onCircuit: () => () => {},
    forget: async () => {},
    marks: serverMarks(),
    restore: () => {},
  });
  for (const name of Object.keys(ends)) servers.declare(parseServerDefinition(name, { command: name }, true), () => {});
  await expect(servers.close()).rejects.toThrow('at once');
  expect(ended).toEqual(['c']);
});

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A server `a` that takes 2 s to end, and `edit`, which replaces it. */
async function slowToEnd(isLazy: boolean, forget: () => Promise<void> = async () => {}) {
  const clock = new FakeClock();
  const server = new FakeServer(clock);
  server.next = () => ({ closeMs: 2_000 });
  const supervise: Supervise = ({ name }, predecessor) => {
    const gate = new StartGate(clock);
    const supervisor = new Supervisor<Session>({
      ...{ name, clock, isLazy, events: new Emitter(), guard: new CorrelatedFailures(clock), random: () => 0.5 },
      gate: predecessor ? gateAfter(predecessor.ended, gate) : gate,
      connect: (...args) => server.connect(...args) as unknown as Promise<Session>,
      verify: () => Promise.resolve(true),
    });
    return { supervisor, auth: undefined, unlisten: undefined };
  };
  const servers = new Servers({
    ...{ clock, supervise, onCircuit: () => () => {}, forget, restore: () => {}, marks: serverMarks() },
  });
  let edits = 0;
  const edit = () =>
    servers.redeclare(
      parseServerDefinition('a', { command: 'a', args: [String(++edits)], lazy: isLazy }, true),
      () => {},
      () => true,
    );
  const call = () => servers.get('a').supervisor.acquire(clock.nowMs() + 60_000);
  await edit();
  await call();
  return { clock, server, servers, edit, call };
}

test.each([true, false])(
  'D-14 after several edits (lazy: %s) the newest server starts when the first one has ended',
  async (isLazy) => {
    const { clock, server, edit, call } = await slowToEnd(isLazy);
    await edit();
    await edit();
    const called = call();
    await settle();
    expect([server.opened, server.live]).toEqual([1, 1]);
    clock.advance(2_000);
    await called;
    expect([server.opened, server.liveMax]).toEqual([2, 1]);
  },
);

test.each([
  ['stop', ({ servers }: Awaited<ReturnType<typeof slowToEnd>>) => servers.get('a').stop()],
  ['removal', ({ servers }: Awaited<ReturnType<typeof slowToEnd>>) => servers.remove('a', () => true)],
  ['close', ({ servers }: Awaited<ReturnType<typeof slowToEnd>>) => servers.close()],
])('D-14 the %s of a server waits for the end of the one that it replaced', async (_what, act) => {
  const setUp = await slowToEnd(false);
  const { clock, server, edit } = setUp;
  await edit();
  let isOver = false;
  void act(setUp).then(() => {
    isOver = true;
  });
  await settle();
  expect([isOver, server.live]).toEqual([false, 1]);
  clock.advance(2_000);
  await settle();
  expect([isOver, server.live, server.opened]).toEqual([true, 0, 1]);
});

test('W8 a removal waits for the instances of clients, and the name is free when the server itself has ended', async () => {
  const instances = deferred();
  const { clock, server, servers, edit } = await slowToEnd(false, () => instances.promise);
  let isOver = false;
  void servers
    .remove('a', () => true)
    .then(() => {
      isOver = true;
    });
  const added = edit();
  await settle();
  clock.advance(2_000);
  await added;
  expect([isOver, server.live, server.opened]).toEqual([false, 1, 2]);
  expect(servers.find('a')).toBeDefined();
  instances.resolve();
  await settle();
  expect(isOver).toBe(true);
});
