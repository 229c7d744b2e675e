/** A worker whose connection is lost: who notices, who waits, and what is the same afterwards. */
import { describe, expect, test } from 'vitest';
import type { OpenWorkerLink, WorkerLink } from '../../../src/broker/ports.js';
import { RemoteTools } from '../../../src/broker/worker/remote-tools.js';
import { HostError } from '../../../src/kernel/errors.js';
import { mailbox, makeRig, outcomeOf, type RigOptions, unconnected, watched } from './worker-rig.js';

const down = () => new HostError('connect_failed', 'nobody listens', { execution: 'not_executed' });
const dialects: [string, RigOptions][] = [
  ['in our words', {}],
  ['in the older ones', { compat: true }],
];

describe('a lost connection', () => {
  test.each(dialects)('AC-P8 costs a call time, and nothing else, %s', async (_in, options) => {
    const { tools, broker, host, clock } = await makeRig(options);
    expect(await outcomeOf(tools.execute(undefined, 'click', { n: 1 }))).toBe('click {"n":1}');
    broker.cut(mailbox);
    const second = watched(tools.execute(undefined, 'click', { n: 2 }));
    await clock.advanceAsync(15_000);
    expect(second.outcome).toBe('click {"n":2}');
    expect(broker.workerOpens).toBeGreaterThanOrEqual(2);
    expect(await outcomeOf(tools.execute(undefined, 'click', { n: 3 }))).toBe('click {"n":3}');
    expect(host.ran).toHaveLength(3);
  });

  test('D-50 is repaired once for all callers, each of whom waits with its own time', async () => {
    const { tools, broker, clock } = await makeRig();
    broker.outage = down();
    broker.cut(mailbox);
    await clock.advanceAsync(0);
    const before = broker.workerOpens;
    const hasty = watched(tools.execute('nova', 'click', {}, { deadlineMs: 500 }));
    const patient = Array.from({ length: 20 }, (_, n) => watched(tools.execute('nova', 'click', { n })));
    await clock.advanceAsync(500);
    expect(hasty.outcome).toBe('timeout not_executed');
    await clock.advanceAsync(9_500);
    // 200 ms doubling to 2 s, each drawn from its upper half.
    const tries = broker.workerOpens - before;
    expect(tries).toBeGreaterThanOrEqual(6);
    expect(tries).toBeLessThanOrEqual(13);
    broker.outage = undefined;
    await clock.advanceAsync(2_000);
    expect(patient.map(({ outcome }) => outcome)).toEqual(Array.from({ length: 20 }, (_, n) => `click {"n":${n}}`));
    expect(broker.workerOpens - before).toBe(tries + 1);
  });

  test('D-50 is repaired without a wait after the try that succeeds', async () => {
    const { tools, broker, clock } = await makeRig();
    broker.cut(mailbox);
    const call = watched(tools.execute('nova', 'click', {}));
    await clock.advanceAsync(200);
    expect([call.outcome, broker.workerOpens]).toEqual(['click {}', 2]);
  });

  test('D-50 goes on being repaired for as long as it takes', async () => {
    const { tools, broker, clock } = await makeRig();
    broker.outage = down();
    broker.cut(mailbox);
    await clock.advanceAsync(600_000);
    expect(tools.status()).toMatchObject({ state: 'reconnecting', tools: 1, lastError: { code: 'connect_failed' } });
    broker.outage = undefined;
    await clock.advanceAsync(2_000);
    expect(tools.status()).toMatchObject({ state: 'ready', lastError: undefined });
  });

  test.each(['unauthenticated', 'denied'] as const)('D-50 is final when the credential is %s', async (code) => {
    const { tools, broker, clock } = await makeRig();
    const states: string[] = [];
    tools.on('state', ({ state }) => void states.push(state));
    broker.outage = new HostError(code, 'the key does not count');
    const held = watched(tools.execute('nova', 'click', {}));
    broker.cut(mailbox);
    await clock.advanceAsync(60_000);
    const tries = broker.workerOpens;
    await clock.advanceAsync(3_600_000);
    expect([broker.workerOpens, states.at(-1)]).toEqual([tries, 'refused']);
    expect(tools.status()).toMatchObject({ state: 'refused', lastError: { code } });
    expect(held.outcome).toBe(`${code} uncertain`);
    expect(await outcomeOf(tools.execute('nova', 'click', {}))).toBe(`${code} not_executed`);
  });

  test('D-50 is final at the first connection too', async () => {
    const rig = unconnected();
    rig.broker.outage = new HostError('unauthenticated', 'the key does not count');
    const ready = rig.tools.ready(30_000).catch((error: HostError) => error.code);
    await rig.settle();
    expect(await ready).toBe('unauthenticated');
    expect(rig.broker.workerOpens).toBe(1);
  });

  test('D-51 that nobody noticed is found out, and calls go on within 40 s', async () => {
    const { tools, broker, host, clock } = await makeRig();
    broker.blackHole(mailbox);
    const call = watched(tools.execute('nova', 'click', {}, { deadlineMs: 60_000 }));
    await clock.advanceAsync(40_000);
    expect([call.outcome, host.ran.length]).toEqual(['click {}', 1]);
    expect(tools.status()).toMatchObject({ state: 'ready', connections: 2 });
  });

  test('D-51 to a broker that never answers is given up, and tried anew', async () => {
    const { tools, broker, clock } = await makeRig();
    broker.outage = 'silent';
    broker.cut(mailbox);
    await clock.advanceAsync(25_000);
    expect(tools.status().state).toBe('reconnecting');
    expect(broker.workerOpens).toBe(4);
    broker.outage = undefined;
    await clock.advanceAsync(12_000);
    expect(tools.status().state).toBe('ready');
  });

  test('D-56 is known by what the sending said, though the link itself has not noticed', async () => {
    const { broker, host, clock } = unconnected();
    await host.connect();
    let isDeaf = false;
    const links: WorkerLink[] = [];
    const open: OpenWorkerLink = async (handlers, signal) => {
      const inner = await broker.openWorker({ mailbox: 'w3', role: undefined })(handlers, signal);
      const link: WorkerLink = {
        ...inner,
        // It never tells that it is over.
        closed: new Promise(() => {}),
        send: (request) =>
          isDeaf && links[0] === link
            ? Promise.reject(new HostError('transport', 'broken pipe', { execution: 'not_executed' }))
            : inner.send(request),
      };
      links.push(link);
      return link;
    };
    const tools = new RemoteTools({ open, clock, random: () => 0.5 });
    await clock.advanceAsync(0);
    isDeaf = true;
    const call = watched(tools.execute('nova', 'click', {}));
    await clock.advanceAsync(1_000);
    expect([call.outcome, links.length, host.ran.length]).toEqual(['click {}', 2, 1]);
    await tools.close();
  });

  test('D-56 is not what a late reply, a refusal or a slow tool are', async () => {
    const { tools, broker, host, clock } = await makeRig();
    broker.refuseNextSend(new HostError('overloaded', 'full', { execution: 'not_executed' }));
    expect(await outcomeOf(tools.execute('nova', 'click', {}))).toBe('overloaded not_executed');
    host.onCall = () => new Promise(() => {});
    const slow = watched(tools.execute('nova', 'click', {}, { deadlineMs: 100 }));
    await clock.advanceAsync(10_000);
    expect([slow.outcome, broker.workerOpens, tools.status().connections]).toEqual(['timeout uncertain', 1, 1]);
  });

  test('D-57 and the tools that were learned over the next one are exchanged as one', async () => {
    const { tools, broker, host, clock, callSends } = await makeRig();
    await clock.advanceAsync(10_000);
    host.change(['nova/type'], false);
    broker.cut(mailbox);
    const old = watched(tools.execute('nova', 'click', {}));
    await clock.advanceAsync(0);
    // The manifest is that of the lost link until the next one is there.
    expect(tools.list().map(({ name }) => name)).toEqual(['click']);
    await clock.advanceAsync(5_000);
    expect(tools.list().map(({ name }) => name)).toEqual(['type']);
    expect(old.outcome).toBe('click {}');
    const revisions = callSends().map(({ request }) => JSON.parse(request.body.toString()).manifestRevision);
    expect(revisions).toEqual(['r0-1']);
    expect(await outcomeOf(tools.execute('nova', 'type', {}))).toBe('type {}');
    expect(JSON.parse(callSends()[1]?.request.body.toString() as string).manifestRevision).toBe('r1-1');
  });

  test('D-57 and an answer to a question over the older link change nothing any more', async () => {
    const { tools, broker, host, clock } = await makeRig();
    broker.holdsReplies = true;
    host.change(['nova/of_the_old_link']);
    await clock.advanceAsync(0);
    broker.cut(mailbox);
    host.change(['nova/newest'], false);
    await clock.advanceAsync(1_000);
    broker.releaseReplies();
    await clock.advanceAsync(1_000);
    expect(tools.list().map(({ name }) => name)).toEqual(['newest']);
  });

  test('is no reason to stop holding requests while the host is away', async () => {
    const { tools, broker, host, clock } = await makeRig();
    await host.close();
    broker.cut(mailbox);
    const call = watched(tools.execute('nova', 'click', {}));
    await clock.advanceAsync(5_000);
    expect([tools.status().state, call.outcome]).toEqual(['ready', undefined]);
    expect(broker.owed).toBeGreaterThanOrEqual(1);
    await host.connect();
    await clock.advanceAsync(0);
    expect(call.outcome).toBe('click {}');
  });

  test('is waited for by calls that were not sent only as long as the worker was told to', async () => {
    const { tools, broker, clock } = await makeRig({ linkWaitMs: 15_000 });
    broker.outage = down();
    broker.cut(mailbox);
    await clock.advanceAsync(0);
    const call = watched(tools.execute('nova', 'click', {}, { deadlineMs: 600_000 }));
    await clock.advanceAsync(14_999);
    expect(call.outcome).toBeUndefined();
    await clock.advanceAsync(1);
    expect(call.outcome).toBe('reconnecting not_executed');
  });
});

test('a link that opens after nobody wants it any more is closed', async () => {
  const { broker, clock } = unconnected();
  const given: ((link: WorkerLink) => void)[] = [];
  const closed: number[] = [];
  const tools = new RemoteTools({
    clock,
    open: () => new Promise((resolve) => void given.push(resolve)),
  });
  await clock.advanceAsync(0);
  await tools.close();
  const link = await broker.openWorker({ mailbox: 'late', role: undefined })(
    { replied: () => {}, told: () => {} },
    new AbortController().signal,
  );
  given[0]?.({ ...link, close: async () => void closed.push(1) });
  await clock.advanceAsync(0);
  expect([given.length, closed]).toEqual([1, [1]]);
  expect(tools.status().state).toBe('closed');
});
