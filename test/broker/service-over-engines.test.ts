/** The service of a host over every real engine: requests that wait, in the engine or for their turn, while things change. */
import { afterEach, describe, expect, test } from 'vitest';
import { callRequest } from '../../src/broker/messages.js';
import { BrokerService } from '../../src/broker/service/broker-service.js';
import { Cancellation } from '../../src/kernel/cancel-signal.js';
import { type Clock, systemClock } from '../../src/kernel/clock.js';
import { type Bench, type BenchOptions, engines, type Roles, workers } from '../contract/broker/engines.js';
import { eventually } from '../eventually.js';
import { FakeUpstreams } from '../fakes/fake-upstreams.js';

const slowMs = 60_000;
const never = new Cancellation();
const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
}, slowMs);

const changes: readonly (readonly [string, Roles])[] = [
  ['another role', { ...workers, bob: 'sandbox' }],
  ['no key any more', { alice: workers.alice, carol: workers.carol }],
];

/** A host that runs one call at a time, each until it is let go, and a worker; `shift` puts the clock of the host on. */
async function started(bench: Bench) {
  ends.push(() => bench.close());
  const host = new FakeUpstreams({ nova: { tools: ['click'] } });
  const held: (() => void)[] = [];
  host.onCall = () => new Promise((resolve) => held.push(() => resolve('{"content":[]}')));
  let shiftedMs = 0;
  const clock: Clock = { ...systemClock, nowMs: () => systemClock.nowMs() + shiftedMs };
  const service = new BrokerService({
    ...{ host, journal: bench.journal, clock, limits: { running: 1 } },
    isRolelessAllowed: () => true,
  });
  const cancelled: string[] = [];
  const link = await bench.openHost(
    {
      deliver: (delivery) => service.deliver(delivery),
      cancelled: (from, id) => {
        cancelled.push(id);
        service.cancelled(from, id);
      },
    },
    never,
  );
  service.attach(link);
  ends.push(async () => {
    service.close();
    await link.close();
  });
  const replies = new Map<string, string>();
  const worker = await bench.openWorker('bob')(
    { replied: (id, body) => replies.set(id, body.toString()), told: () => {} },
    never,
  );
  ends.push(() => worker.close());
  const send = (callKey: string) => {
    const call = { server: 'nova', tool: 'click', args: JSON.stringify({ callKey }), deadlineMs: slowMs };
    const more = { manifestRevision: undefined, trace: undefined, wantsProgress: false, isCallersKey: false };
    const body = callRequest({ ...call, ...more, callKey });
    return worker.send({ id: callKey, body, ttlMs: slowMs, isFresh: true });
  };
  return {
    ...{ bench, host, held, cancelled, worker, replies },
    /** Resolves when all are held. */
    send: (keys: readonly string[]) => Promise.all(keys.map(send)),
    shift: (ms: number) => {
      shiftedMs += ms;
    },
    /** Lets go of whatever runs, until nothing is owed any more. */
    drained: () =>
      eventually('nothing is owed', async () => {
        for (const release of held.splice(0)) release();
        const { running, waiting } = service.status();
        return running === 0 && waiting === 0 && (await bench.depth()) === 0;
      }),
    ran: () => host.calls.map(({ args }) => (JSON.parse(args) as { callKey: string }).callKey),
  };
}

describe.each(engines.map((engine) => [engine.name, engine] as const))('%s', (_name, engine) => {
  const open = async (options?: BenchOptions) => started(await engine.open(options));

  test(
    'D-45 what is given up while it waits is not begun, however long it waits',
    async () => {
      const { bench, held, cancelled, worker, send, shift, drained, ran } = await open({ windowOfOne: 2 });
      await send(['running', 'next']);
      await eventually('the first runs', () => held.length === 1);
      const given = ['given0', 'given1', 'given2'];
      await send(given);
      await send(['kept']);
      const before = await bench.depth();
      for (const id of given) worker.cancel(id);
      // An engine that keeps cancels takes such requests out; any other tells its host.
      await eventually(
        'the cancels came',
        async () => cancelled.length === given.length || (await bench.depth()) === before - given.length,
      );
      shift(12_000);
      await drained();
      expect(ran()).toEqual(['running', 'next', 'kept']);
    },
    slowMs,
  );

  test.each(changes)(
    'AC-X4 what waits while its worker is given %s is not begun in the role it had',
    async (_, roles) => {
      const { bench, host, held, send, drained, ran } = await open({ windowOfOne: 2 });
      host.allow(({ role }) => role !== 'sandbox');
      await send(['running', 'next', 'later']);
      await eventually('the first runs', () => held.length === 1);
      await bench.rekey(roles);
      await drained();
      expect(ran()).toEqual(['running']);
    },
    slowMs,
  );
});
