/**
 * One worker floods and nine behave, from the broker's mailbox over the host's turns to the places of one server, in a time that
 * only moves when told: what is left is whose turn it is, and not how fast this machine happens to be.
 */
import { expect, test } from 'vitest';
import { localHostLink } from '../../../src/broker/embedded/host-link.js';
import type { BrokerLimits } from '../../../src/broker/embedded/limits.js';
import { callRequest } from '../../../src/broker/messages.js';
import { BrokerService } from '../../../src/broker/service/broker-service.js';
import { Cancellation } from '../../../src/kernel/cancel-signal.js';
import { CallSlots } from '../../../src/policy/concurrency.js';
import { FakeUpstreams } from '../../fakes/fake-upstreams.js';
import { MemoryJournal } from '../../fakes/memory-journal.js';
import { fakeCall } from '../../fakes/policy-call.js';
import { coreBench, type Frame, type RawClient, worker } from './core-bench.js';

const calm = Array.from({ length: 9 }, (_, n) => `calm${n}`);
const [callMs, beatMs, forMs] = [5, 50, 1_000];
/** Of the server. */
const places = 8;
/** Calls that the flood has under way, at all times: more than its turns, its window and the server's places. */
const floodLanes = 300;

/** One call at a time, at each beat or as soon as the one before is over; the flood, so many and without a beat. */
class Caller {
  readonly tookMs: number[] = [];
  readonly #client: RawClient;
  readonly #lanes: number;
  readonly #openMs = new Map<string, number>();
  #read = 0;
  #number = 0;

  constructor(
    readonly name: string,
    client: RawClient,
    lanes: number,
  ) {
    this.#client = client.subscribed(name);
    this.#lanes = lanes;
  }

  step(nowMs: number, isBeat: boolean): void {
    const { frames } = this.#client.wire;
    for (; this.#read < frames.length; this.#read++) {
      const frame = frames[this.#read] as Frame;
      if (frame.kind !== 'message') continue;
      this.#client.ack(frame);
      this.tookMs.push(nowMs - (this.#openMs.get(frame.id as string) as number));
      this.#openMs.delete(frame.id as string);
    }
    for (let free = isBeat ? this.#lanes - this.#openMs.size : 0; free > 0; free--) this.#send(nowMs);
  }

  #send(nowMs: number): void {
    const callKey = `${this.name}-${this.#number++}`;
    this.#openMs.set(callKey, nowMs);
    const none = { server: undefined, manifestRevision: undefined, trace: undefined };
    const call = { ...none, wantsProgress: false, isCallersKey: false, deadlineMs: 60_000 };
    const body = callRequest({ ...call, callKey, tool: 'work', args: '{}' });
    this.#client.request(callKey, JSON.parse(body.toString()));
  }
}

/** The calm ones for a second, with the flood beside them or without. */
async function second(isFlooded: boolean, limits: Partial<BrokerLimits>) {
  const { core, clock, client, settle } = await coreBench(
    limits,
    [...calm, 'flood'].map((name) => worker(name)),
  );
  const host = new FakeUpstreams({ it: { tools: ['work'] } });
  const slots = new CallSlots(clock, { runningMax: places, waitingMax: 1_024, waitMsMax: 60_000 });
  host.onCall = ({ server, tool, options: { principal } }) =>
    new Promise((resolve, reject) => {
      if (!principal) throw new Error('a call of nobody');
      slots.take(fakeCall({ principal, server, tool }), (refusal) => {
        if (refusal) return reject(refusal);
        clock.at(clock.nowMs() + callMs, () => {
          slots.give();
          resolve('{"content":[]}');
        });
      });
    });
  const service = new BrokerService({ host, journal: new MemoryJournal(), clock });
  service.attach(await localHostLink(core)(service, new Cancellation()));
  const callers = calm.map((name) => new Caller(name, client(), 1));
  const flood = new Caller('flood', client(), floodLanes);
  await settle();
  // First the flood has all that it may; a beat after the last counted one, everybody has its answer.
  for (let ms = -200; ms < forMs + beatMs; ms++) {
    if (isFlooded) flood.step(ms, true);
    callers.forEach((caller, at) => {
      // Each has its own beat.
      caller.step(ms, ms >= 0 && ms < forMs && (ms + at * callMs) % beatMs === 0);
    });
    await settle();
    clock.advance(1);
    await settle();
  }
  service.close();
  await core.close();
  return { calm: callers.map(({ tookMs }) => tookMs), flood: flood.tookMs.length };
}

const rates = [
  ['at the rate that one mailbox may send', {}],
  ['as fast as it can', { rate: undefined }],
] as const;
test.each(rates)(
  'K8 one floods %s: whoever behaves has as many calls as without, and waits for one call of another at most',
  {
    timeout: 60_000,
  },
  async (_, limits) => {
    const solo = await second(false, limits);
    const flooded = await second(true, limits);
    const beats = forMs / beatMs;
    expect(solo.calm.map((tookMs) => tookMs.length)).toEqual(calm.map(() => beats));
    expect(flooded.calm.map((tookMs) => tookMs.length)).toEqual(calm.map(() => beats));
    // Its own time, one that runs already, and the step between two looks.
    expect(Math.max(...flooded.calm.flat())).toBeLessThanOrEqual(2 * callMs + 1);
    // There was a flood: three times all of them together, and what nobody else wanted of the server.
    expect(flooded.flood).toBeGreaterThan(3 * calm.length * beats);
  },
);
