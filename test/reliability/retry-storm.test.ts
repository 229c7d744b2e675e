/**
 * A server fails every call for a minute, under two hundred calls a second that may all be sent again: the number of retries,
 * and the time until calls succeed afterwards. Uses the real last stage, budget and supervisor on a fake clock. The breaker is
 * left out, because it would refuse most of these calls before a retry is considered.
 */

import { describe, expect, test } from 'vitest';
import { dispatch } from '../../src/host/dispatch.js';
import { type Clock, sleep } from '../../src/kernel/clock.js';
import { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { ReconnectBackoff } from '../../src/policy/retry.js';
import type { ServerFacts } from '../../src/session/eras/server-era.js';
import type { Answer } from '../../src/wire/peer-interface.js';
import { managedSession } from '../fakes/managed-session.js';
import { asked, fakeCall, promised } from '../fakes/policy-call.js';

const everyMs = 5;
const outageMs = 60_000;
const recoveryMs = 5_000;

/** Fails each call, like a server behind a broken proxy: the connection itself stays open. */
class FailingSession {
  readonly closedBy = undefined;
  readonly facts = { era: 'legacy' } as ServerFacts;
  readonly #clock: Clock;
  readonly #failsAfterMs: number;
  sent = 0;
  isWell = false;

  constructor(clock: Clock, failsAfterMs: number) {
    this.#clock = clock;
    this.#failsAfterMs = failsAfterMs;
  }

  callToolWithCallback(
    _tool: string,
    _args: unknown,
    _options: unknown,
    done: (outcome: Answer | Error) => void,
  ): void {
    this.#answer().then(done, done);
  }

  async #answer(): Promise<Answer> {
    this.sent++;
    if (this.isWell) {
      await sleep(this.#clock, 2);
      return { kind: 'result', bytes: Buffer.from('{"content":[]}'), mayHold: 0 };
    }
    if (this.#failsAfterMs > 0) await sleep(this.#clock, this.#failsAfterMs);
    throw new HostError('transport', 'the stream ended', { reason: 'reset', phase: 'written', execution: 'uncertain' });
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

function setUp(failsAfterMs: number) {
  const clock = new FakeClock();
  const session = new FailingSession(clock, failsAfterMs);
  const managed = managedSession('storm', session, clock, { trustAnnotations: true });
  const raw = Buffer.from('{"name":"read","annotations":{"readOnlyHint":true}}');
  managed.learn([{ key: 'read', raw }], () => true);
  const way = dispatch({
    serverOf: () => managed,
    targetOf: (server) => server,
    clock,
    reconnects: new ReconnectBackoff(clock, () => 0.5),
    clean: (text) => text,
    pinRefusal: () => undefined,
    serverThrottle: { refusal: () => undefined },
    exchange: () => Promise.reject(new Error('calls only')),
    onReplay: () => {},
  });
  const send = promised(asked(way));
  const call = () => {
    const storming = fakeCall({ server: 'storm', tool: 'read', deadlineAtMs: clock.nowMs() + 30_000 });
    return send(storming).then(
      () => true,
      () => false,
    );
  };
  /** Begins one call after the other, whether or not earlier calls have ended. Resolves when all have ended. */
  const storm = async (forMs: number) => {
    const sentBefore = session.sent;
    const calls: Promise<boolean>[] = [];
    let inFlightMax = 0;
    for (let ms = 0; ms < forMs; ms += everyMs) {
      calls.push(call());
      await clock.advanceAsync(everyMs);
      inFlightMax = Math.max(inFlightMax, managed.retries.inFlight);
    }
    await clock.advanceAsync(10_000);
    const successes = (await Promise.all(calls)).filter(Boolean).length;
    return { calls: calls.length, successes, retries: session.sent - sentBefore - calls.length, inFlightMax };
  };
  return { session, storm, managed, call, clock };
}

describe('K5 retry storm: 200 calls a second at a server that fails them all for 60 s', () => {
  test.each([0, 5, 1_000])(
    'if calls fail after %d ms, retries are at most a tenth of the calls, and 99 % succeed after the failure has ended',
    async (failsAfterMs) => {
      const { session, storm } = setUp(failsAfterMs);
      const outage = await storm(outageMs);
      expect(outage).toMatchObject({ calls: 12_000, successes: 0 });
      expect(outage.retries).toBeGreaterThan(0);
      expect(outage.retries).toBeLessThanOrEqual(outage.calls / 10);
      session.isWell = true;
      const after = await storm(recoveryMs);
      expect(after.successes).toBeGreaterThanOrEqual(after.calls * 0.99);
    },
  );

  test('a few calls are all sent again', async () => {
    const { session, managed, call, clock } = setUp(1_000);
    const calls = [call(), call(), call(), call()];
    await clock.advanceAsync(1_500);
    expect(managed.retries.inFlight).toBe(4);
    session.isWell = true;
    await clock.advanceAsync(10_000);
    expect(await Promise.all(calls)).toEqual([true, true, true, true]);
  });
});
