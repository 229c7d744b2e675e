/** A worker whose connection is lost connects again by itself, and its calls continue. */
import { describe, expect, test } from 'vitest';
import { HostError } from '../../../src/kernel/errors.js';
import { makeRig, outcomeOf, unconnected, watched } from './worker-rig.js';

const down = () => new HostError('connect_failed', 'nothing listens', { execution: 'not_executed' });
const call = ['nova', 'nova_click'] as const;

describe('a lost connection', () => {
  test('AC-P8 delays a call and changes nothing else', async () => {
    const { tools, broker, host, clock } = await makeRig();
    expect(await outcomeOf(tools.execute(...call, { n: 1 }))).toBe('nova_click {"n":1}');
    broker.cut();
    const second = watched(tools.execute(...call, { n: 2 }));
    await clock.advanceAsync(15_000);
    expect(second.outcome).toBe('nova_click {"n":2}');
    expect(broker.opened).toHaveLength(2);
    expect(await outcomeOf(tools.execute(...call, { n: 3 }))).toBe('nova_click {"n":3}');
    expect(host.ran).toHaveLength(3);
  });

  test('D-50 is repaired once for all callers, and each caller waits for its own time', async () => {
    const { tools, broker, clock, settle } = await makeRig();
    broker.refusal = down();
    broker.cut();
    await settle();
    const before = broker.attempts;
    const hasty = watched(tools.execute(...call, {}, { deadlineMs: 500 }));
    const patient = Array.from({ length: 20 }, (_, n) => watched(tools.execute(...call, { n })));
    await clock.advanceAsync(500);
    expect(hasty.outcome).toBe('timeout not_executed');
    await clock.advanceAsync(9_500);
    // 200 ms doubling to 2 s, each up to a quarter shorter.
    const attempts = broker.attempts - before;
    expect(attempts).toBeGreaterThanOrEqual(6);
    expect(attempts).toBeLessThanOrEqual(10);
    broker.refusal = undefined;
    await clock.advanceAsync(2_000);
    expect(patient.map(({ outcome }) => outcome)).toEqual(
      Array.from({ length: 20 }, (_, n) => `nova_click {"n":${n}}`),
    );
    expect(broker.attempts - before).toBe(attempts + 1);
  });

  test('D-50 is repaired for as long as it takes', async () => {
    const { tools, broker, clock } = await makeRig();
    broker.refusal = down();
    broker.cut();
    await clock.advanceAsync(600_000);
    expect(tools.status()).toMatchObject({ state: 'reconnecting', tools: 1, lastError: { code: 'connect_failed' } });
    broker.refusal = undefined;
    await clock.advanceAsync(2_000);
    expect(tools.status()).toMatchObject({ state: 'ready', lastError: undefined, connections: 2 });
  });

  test('D-52 counts as a good one after 10 s: connections that end earlier are opened more and more slowly', async () => {
    const { broker, clock } = await makeRig();
    /** Ends the connection after this time; returns how long the next one took. */
    const delayAfter = async (lastedMs: number) => {
      await clock.advanceAsync(lastedMs);
      const { attempts } = broker;
      broker.cut();
      let waitedMs = 0;
      for (; broker.attempts === attempts && waitedMs < 10_000; waitedMs += 50) await clock.advanceAsync(50);
      return waitedMs;
    };
    const short: number[] = [];
    for (let times = 0; times < 6; times++) short.push(await delayAfter(9_000));
    expect(short.at(-1)).toBeGreaterThanOrEqual(1_500);
    expect(short[0]).toBeLessThanOrEqual(250);
    expect(await delayAfter(10_000)).toBeLessThanOrEqual(150);
    expect(await delayAfter(9_000)).toBeLessThanOrEqual(250);
  });

  test('connected again is an event', async () => {
    const { tools, broker, clock } = await makeRig();
    const times: number[] = [];
    tools.on('connected', (event) => void times.push(event.times));
    broker.cut();
    await clock.advanceAsync(1_000);
    expect(times).toEqual([2]);
  });

  test.each(['unauthenticated', 'denied'] as const)(
    'D-50 with a key that is %s: callers get the error at once, and the next tries follow after 30 s, doubling to 5 min',
    async (code) => {
      const { tools, broker, host, clock, settle } = await makeRig();
      host.onCall = () => new Promise(() => {});
      const states: string[] = [];
      tools.on('state', ({ state }) => void states.push(state));
      const open = watched(tools.execute(...call, {}));
      await settle();
      broker.refusal = new HostError(code, 'the key was refused');
      broker.cut(new HostError(code, 'the key was revoked'));
      await settle();
      expect(open.outcome).toBe(`${code} uncertain`);
      expect(await outcomeOf(tools.execute(...call, {}))).toBe(`${code} not_executed`);
      const before = broker.attempts;
      await clock.advanceAsync(20_000);
      expect(broker.attempts).toBe(before);
      await clock.advanceAsync(10_000);
      expect(broker.attempts).toBe(before + 1);
      await clock.advanceAsync(3_600_000);
      const later = broker.attempts;
      expect(later - before).toBeGreaterThanOrEqual(13);
      expect(later - before).toBeLessThanOrEqual(19);
      expect([states.at(-1), tools.status().lastError?.code]).toEqual(['refused', code]);
      host.onCall = () => 'back';
      broker.refusal = undefined;
      await clock.advanceAsync(300_000);
      expect(states.at(-1)).toBe('ready');
      expect(await outcomeOf(tools.execute(...call, {}))).toBe('back');
    },
  );

  test('D-50 a key that is refused at the first connection ends ready() at once', async () => {
    const rig = unconnected();
    rig.broker.refusal = new HostError('unauthenticated', 'the key was refused');
    const ready = rig.tools.ready(30_000).catch((error: HostError) => error.code);
    await rig.settle();
    expect(await ready).toBe('unauthenticated');
    expect(rig.broker.attempts).toBe(1);
  });

  test('D-51 to a broker that never answers is given up, and tried again', async () => {
    const { tools, broker, clock } = await makeRig();
    broker.isSilent = true;
    broker.cut();
    await clock.advanceAsync(40_000);
    expect(tools.status().state).toBe('reconnecting');
    expect(broker.attempts).toBe(4);
    broker.isSilent = false;
    await clock.advanceAsync(17_000);
    expect(tools.status().state).toBe('ready');
  });

  test('D-56 is no error for a call that was in flight: the call is sent again', async () => {
    const { tools, broker, host, clock } = await makeRig();
    broker.isBlackHole = true;
    const open = watched(tools.execute(...call, {}));
    await clock.advanceAsync(1_000);
    broker.isBlackHole = false;
    broker.cut();
    await clock.advanceAsync(1_000);
    expect([open.outcome, host.ran.length]).toEqual(['nova_click {}', 1]);
  });

  test('D-57 connection and manifest change in one step', async () => {
    const { tools, broker, host, clock, settle } = await makeRig();
    broker.cut();
    host.setTools(['nova/nova_type']);
    await clock.advanceAsync(1_000);
    expect(tools.list().map(({ name }) => name)).toEqual(['nova_type']);
    expect(await outcomeOf(tools.execute('nova', 'nova_type', {}))).toBe('nova_type {}');
    expect(host.sendings.at(-1)?.request.manifestRevision).toBe('r2');
    await settle();
  });

  test('D-57 an answer over an older connection changes nothing', async () => {
    const { tools, broker, host, clock, settle } = await makeRig();
    let answer: (body: Buffer) => void = () => {};
    host.onManifest = () =>
      new Promise((resolve) => {
        answer = resolve;
      });
    host.setTools(['nova/nova_type']);
    broker.notify(() => true, { op: 'manifest_changed', revision: 'r2' });
    await clock.advanceAsync(1_000);
    const late = answer;
    broker.cut();
    host.onManifest = undefined;
    await clock.advanceAsync(1_000);
    late(Buffer.from('{"revision":"r0","tools":[]}'));
    await settle();
    expect(tools.status()).toMatchObject({ revision: 'r2', tools: 1 });
  });

  test('delays calls that were never sent for no longer than the worker was told to wait', async () => {
    const { tools, broker, clock, settle } = await makeRig({ connectionWaitMs: 15_000 });
    broker.refusal = down();
    broker.cut();
    await settle();
    const open = watched(tools.execute(...call, {}));
    await clock.advanceAsync(15_000);
    expect(open.outcome).toBe('reconnecting not_executed');
  });
});

test('a worker that is closed at any moment of its first connection leaves none open', async () => {
  for (let turns = 0; turns < 20; turns++) {
    const { tools, broker } = unconnected();
    for (let turn = 0; turn < turns; turn++) await undefined;
    let isClosed = false;
    void tools.close().then(() => {
      isClosed = true;
    });
    for (let turn = 0; turn < 50; turn++) await undefined;
    expect([turns, isClosed, broker.current.size, tools.status().state]).toEqual([turns, true, 0, 'closed']);
  }
});

test('a connection that opens after it was given up is closed', async () => {
  const { tools, broker, clock } = unconnected({
    prepare: (transport) => {
      transport.isSilent = true;
    },
  });
  await clock.advanceAsync(20_000);
  expect(broker.current.size).toBe(0);
  await tools.close();
  expect(broker.current.size).toBe(0);
});
