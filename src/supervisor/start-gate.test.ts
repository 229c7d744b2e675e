import { describe, expect, test } from 'vitest';
import { FakeClock } from '../kernel/fake-clock.js';
import { StartGate, type StartGateOptions, startGates } from './start-gate.js';
import { type MachineLoad, StartPace } from './start-pace.js';

/** A gate whose starts end by themselves after `startMs`; never, if that is undefined. */
function gateOf({ startMs, ...options }: StartGateOptions & { startMs?: number } = {}) {
  const clock = new FakeClock();
  const gate = new StartGate(clock, options);
  const begun: { name: string; atMs: number }[] = [];
  let mostRunning = 0;
  const enter = (name: string, isStillNeeded = () => true) =>
    gate.enter({
      isStillNeeded: isStillNeeded,
      begin: (done) => {
        begun.push({ name, atMs: clock.nowMs() });
        mostRunning = Math.max(mostRunning, gate.running);
        if (startMs !== undefined) clock.at(clock.nowMs() + startMs, done);
      },
    });
  return { clock, gate, begun, enter, names: () => begun.map(({ name }) => name), mostRunning: () => mostRunning };
}

/** The maximum of starts in any span of one second. */
const mostInOneSecond = (begun: readonly { atMs: number }[]) =>
  Math.max(...begun.map(({ atMs }) => begun.filter((other) => other.atMs >= atMs && other.atMs < atMs + 1_000).length));

describe('the gate', () => {
  test('lets a single start pass in the same tick', () => {
    const { enter, names } = gateOf();
    enter('a');
    expect(names()).toEqual(['a']);
  });

  test('S4 a hundred starts at once take ten seconds, never more than ten in one second, four at a time', () => {
    const { clock, gate, enter, begun, mostRunning } = gateOf({ concurrent: 4, startMs: 300 });
    for (let i = 0; i < 100; i++) enter(`s${i}`);
    clock.advance(60_000);
    expect(begun.map(({ name }) => name)).toEqual(Array.from({ length: 100 }, (_, i) => `s${i}`));
    expect([mostInOneSecond(begun), mostRunning()]).toEqual([10, 4]);
    expect(begun.at(-1)?.atMs).toBeLessThanOrEqual(10_000);
    expect([gate.running, gate.waiting, clock.pendingTimers]).toEqual([0, 0, 0]);
  });

  test('S4 after ten starts at once, no ten more begin within the same second', () => {
    const { clock, enter, begun } = gateOf({ concurrent: 100, startMs: 0 });
    for (let i = 0; i < 5; i++) enter('early');
    clock.advance(900);
    for (let i = 0; i < 25; i++) enter('late');
    clock.advance(10_000);
    expect([begun.length, mostInOneSecond(begun)]).toEqual([30, 10]);
  });

  test('a start that is no longer wanted at its turn is skipped and costs nothing', () => {
    const { clock, enter, names } = gateOf({ concurrent: 1, startMs: 100 });
    let isStillNeeded = true;
    enter('a');
    enter('b', () => isStillNeeded);
    enter('c');
    isStillNeeded = false;
    clock.advance(100);
    expect(names()).toEqual(['a', 'c']);
  });

  test('a start can be withdrawn until it has begun', () => {
    const { clock, gate, enter, names } = gateOf({ concurrent: 1, startMs: 100 });
    const withdrawBegun = enter('a');
    const withdraw = enter('b');
    expect([withdrawBegun(), withdraw(), withdraw()]).toEqual([false, true, false]);
    clock.advance(10_000);
    expect([names(), gate.running, clock.pendingTimers]).toEqual([['a'], 0, 0]);
  });

  test('withdrawing the last waiting start leaves no timer', () => {
    const { clock, enter } = gateOf({ concurrent: 100, startsPerSecond: 1, startMs: 0 });
    enter('a');
    const withdraw = enter('b');
    withdraw();
    clock.advance(0);
    expect(clock.pendingTimers).toBe(0);
  });

  test('servers that hang in their start delay the others by ten seconds at most', () => {
    const { clock, enter, names } = gateOf({ concurrent: 2 });
    for (const name of ['hung1', 'hung2', 'well']) enter(name);
    clock.advance(9_999);
    expect(names()).toEqual(['hung1', 'hung2']);
    clock.advance(1);
    expect(names()).toEqual(['hung1', 'hung2', 'well']);
  });

  test('a start that ends and is requested again in the same tick waits for its turn', () => {
    const clock = new FakeClock();
    const gate = new StartGate(clock, { concurrent: 1 });
    const begun: string[] = [];
    const request = (name: string, again: boolean) => ({
      isStillNeeded: () => true,
      begin: (done: () => void) => {
        begun.push(name);
        if (again) gate.enter(request(`${name}'`, false));
        done();
        done();
      },
    });
    gate.enter(request('a', true));
    gate.enter(request('b', false));
    expect([begun, gate.running]).toEqual([['a', "a'", 'b'], 0]);
  });
});

/** Fifty starts on a machine with two processors. */
function fifty(load: MachineLoad, startMs = 200) {
  const unlimited = { startsPerSecond: Number.POSITIVE_INFINITY, startMs };
  const gate = gateOf({ ...unlimited, concurrent: new StartPace(load, 2) });
  for (let i = 0; i < 50; i++) gate.enter(`s${i}`);
  gate.clock.advance(60_000);
  return { lastAtMs: gate.begun.at(-1)?.atMs, mostRunning: gate.mostRunning(), left: gate.clock.pendingTimers };
}
const GiB = 1024 ** 3;

describe('starts that follow the load', () => {
  test('on idle processors the number at once doubles every 50 ms', () => {
    expect(fifty({ idleShare: () => 0.5, freeBytes: () => 8 * GiB })).toEqual({
      lastAtMs: 150,
      mostRunning: 50,
      left: 0,
    });
  });

  test('on busy processors four starts per processor run, one after another', () => {
    expect(fifty({ idleShare: () => 0, freeBytes: () => 8 * GiB })).toEqual({
      lastAtMs: 1_200,
      mostRunning: 8,
      left: 0,
    });
  });

  test('on busy processors the number doubles with each round of quick starts', () => {
    expect(fifty({ idleShare: () => 0, freeBytes: () => 8 * GiB }, 40)).toEqual({
      lastAtMs: 80,
      mostRunning: 29,
      left: 0,
    });
  });

  test('quick starts do not exceed the limit of memory', () => {
    expect(fifty({ idleShare: () => 0, freeBytes: () => GiB / 4 }, 40)).toEqual({
      lastAtMs: 480,
      mostRunning: 4,
      left: 0,
    });
  });

  test('with little free memory, as many servers start at once as there are processors', () => {
    expect(fifty({ idleShare: () => 1, freeBytes: () => 0 })).toEqual({ lastAtMs: 4_800, mostRunning: 2, left: 0 });
  });

  test('of a thousand servers at most 64 start at once', () => {
    const gate = gateOf({
      ...{ startsPerSecond: Number.POSITIVE_INFINITY, startMs: 1_000 },
      concurrent: new StartPace({ idleShare: () => 1, freeBytes: () => 1_000 * GiB }, 2),
    });
    for (let i = 0; i < 1_000; i++) gate.enter(`s${i}`);
    gate.clock.advance(60_000);
    expect([gate.begun.length, gate.mostRunning()]).toEqual([1_000, 64]);
  });

  test('S4 restarts keep their limit of ten a second meanwhile, and connections over HTTP begin at once', () => {
    const clock = new FakeClock();
    const { processes, connections } = startGates(clock);
    const begun = { restart: 0, start: 0, connection: 0 };
    const enter = (gate: typeof processes, kind: keyof typeof begun) =>
      gate.enter({
        isRestart: kind === 'restart',
        isStillNeeded: () => true,
        begin: (done) => {
          begun[kind]++;
          done();
        },
      });
    for (let i = 0; i < 50; i++) {
      enter(processes, 'restart');
      enter(processes, 'start');
      enter(connections, 'connection');
    }
    expect(begun).toEqual({ restart: 10, start: 50, connection: 50 });
    clock.advance(5_000);
    expect(begun.restart).toBe(50);
  });
});
