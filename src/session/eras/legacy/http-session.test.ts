import { expect, test } from 'vitest';
import { HostError } from '../../../kernel/errors.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import type { Peer } from '../../../wire/peer.js';
import { LegacyHttpSession } from './http-session.js';

test.each([
  ['answers nothing else', false, 'tools/call', 20_000, 1_000, [0, 1_000, 3_000, 7_000, 15_000]],
  // Hostler reads the list by itself after each renewal, and a refused stream leads to the next renewal.
  ['answers only a list in each', true, 'tools/list', 20_000, 1_000, [0, 1_000, 3_000, 7_000, 15_000]],
  ['answers a call in each', true, 'tools/call', 50_000, 10_000, [0, 10_000, 20_000, 30_000, 40_000, 50_000]],
])('W26 a server that opens sessions and %s', async (_title, isKind, method, endMs, stepMs, expected) => {
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
    ...{ server: 'a', clock, peer, onSlow: () => {}, renewed: () => {}, lost: () => {}, over: () => {} },
    ask: async () => 'known',
    open: async () => {
      opened.push(clock.nowMs());
      left = isKind ? 1 : 0;
    },
  });
  for (let atMs = 0; atMs <= endMs; atMs += stepMs) {
    await clock.advanceAsync(atMs - clock.nowMs());
    left = 0;
    session.send(method, undefined, { deadlineAtMs: atMs + 60_000 }, undefined).catch(() => {});
    await clock.advanceAsync(0);
  }
  expect(opened).toEqual(expected);
});
