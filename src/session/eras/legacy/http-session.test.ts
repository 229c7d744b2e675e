import { expect, test } from 'vitest';
import { HostError } from '../../../kernel/errors.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import type { Peer } from '../../../wire/peer.js';
import { LegacyHttpSession } from './http-session.js';

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
    ...{ server: 'a', clock, peer, onSlow: () => {}, renewed: () => {}, lost: () => {}, over: () => {} },
    ask: async () => 'known',
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
