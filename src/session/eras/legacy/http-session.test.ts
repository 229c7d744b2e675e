import { expect, test } from 'vitest';
import { HostError } from '../../../kernel/errors.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import type { Peer } from '../../../wire/peer.js';
import { LegacyHttpSession, SessionCheck } from './http-session.js';

const refused = (httpStatus: number) => new HostError('protocol_error', 'no', { httpStatus });

function setup() {
  const clock = new FakeClock();
  const asked: number[] = [];
  const state: { outcome: unknown } = { outcome: undefined };
  const check = new SessionCheck(clock, async (deadlineAtMs) => {
    asked.push(deadlineAtMs);
    if (state.outcome !== undefined) throw state.outcome;
  });
  return { clock, asked, state, check };
}

test.each([
  ['answered', undefined, false],
  ['refused with 400', refused(400), true],
  ['refused with 404', refused(404), true],
  ['refused with 401', refused(401), false],
  ['refused with 503', refused(503), false],
  ['not answered', new HostError('timeout', 'late'), false],
  ['not sent', new HostError('connect_failed', 'no'), false],
])('W3 a ping that is %s means that the session is gone: %#', async (_name, outcome, isGone) => {
  const { state, check } = setup();
  state.outcome = outcome;
  expect(await check.isGone(0)).toBe(isGone);
});

test('W3 a session is checked once in 10 s, another session at once', async () => {
  const { clock, asked, state, check } = setup();
  expect(await Promise.all([check.isGone(0), check.isGone(0)])).toEqual([false, false]);
  state.outcome = refused(404);
  clock.advance(9_999);
  expect(await check.isGone(0)).toBe(false);
  clock.advance(1);
  expect(await check.isGone(0)).toBe(true);
  expect(await check.isGone(1)).toBe(true);
  // Each ping has 5 s.
  expect(asked).toEqual([5_000, 15_000, 15_000]);
});

test.each([
  ['answers nothing else is asked for a new one ever more rarely', false, [0, 1_000, 3_000, 7_000, 15_000]],
  ['answers a request in each is asked for a new one at once', true, [0, 10_000, 20_000, 30_000, 40_000, 50_000]],
])('W26 a server that opens sessions and %s', async (_title, isKind, expected) => {
  const clock = new FakeClock();
  const opened: number[] = [];
  const expired = () => new HostError('transport', '404', { reason: 'session_expired', execution: 'not_executed' });
  /** The server forgets its session after this many requests. */
  let left = 0;
  const peer = {
    closedBy: undefined,
    channel: { resetSession: () => undefined },
    request: () =>
      left-- > 0
        ? Promise.resolve({ kind: 'result', bytes: Buffer.from('{}'), mayHold: 0 })
        : Promise.reject(expired()),
  } as unknown as Peer;
  const session = new LegacyHttpSession({
    ...{ server: 'a', clock, peer, onSlow: () => {}, renewed: () => {} },
    open: async () => {
      opened.push(clock.nowMs());
      left = isKind ? 1 : 0;
    },
  });
  for (let atMs = 0; atMs <= (isKind ? 50_000 : 20_000); atMs += isKind ? 10_000 : 1_000) {
    await clock.advanceAsync(atMs - clock.nowMs());
    session.send('tools/list', undefined, { deadlineAtMs: atMs + 60_000 }, undefined).catch(() => {});
    await clock.advanceAsync(0);
  }
  expect(opened).toEqual(expected);
});
