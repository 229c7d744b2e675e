import { describe, expect, test } from 'vitest';
import { type Deferred, deferred } from '../../../kernel/deferred.js';
import { HostError } from '../../../kernel/errors.js';
import { FakeClock } from '../../../kernel/fake-clock.js';
import type { Peer } from '../../../wire/peer.js';
import { LegacyHttpSession } from './http-session.js';

test.each([
  ['answers nothing else', false, 'tools/call', 20_000, 1_000, [0, 1_000, 3_000, 7_000, 15_000]],
  // Hostler reads the list by itself after each renewal, and a refused stream leads to the next renewal.
  ['answers one list in each session', true, 'tools/list', 20_000, 1_000, [0, 1_000, 3_000, 7_000, 15_000]],
  ['answers one call in each session', true, 'tools/call', 50_000, 10_000, [0, 10_000, 20_000, 30_000, 40_000, 50_000]],
])('W26 a server that opens sessions and %s', async (_title, isKind, method, endMs, stepMs, expected) => {
  const clock = new FakeClock();
  const opened: number[] = [];
  const expired = () => new HostError('transport', '404', { reason: 'session_expired', execution: 'not_executed' });
  /** The server forgets its session after this number of requests. */
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
    ...{ server: 'a', clock, peer, onSlow: () => {}, renewed: () => undefined, lost: () => {}, over: async () => {} },
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

describe('a request that waits for a new session', () => {
  /** A session that the server forgets when the test says so; each request that reaches the channel is noted. */
  function setUp() {
    const clock = new FakeClock();
    const sent: string[] = [];
    const opens: Deferred[] = [];
    const world = {
      isForgotten: false,
      isOpen: true,
      hold: undefined as Deferred | undefined,
      refusal: undefined as Error | undefined,
    };
    const peer = {
      closedBy: undefined,
      channel: {
        resetSession: () => {
          world.isOpen = false;
          const opened = () => {
            world.isOpen = true;
          };
          return { opened, failed: () => {} };
        },
      },
      request: (method: string) => {
        sent.push(`${method}${world.isOpen ? '' : ' while no session is open'}`);
        return world.isForgotten
          ? Promise.reject(new HostError('transport', '404', { reason: 'session_expired', execution: 'not_executed' }))
          : Promise.resolve({ kind: 'result', bytes: Buffer.from('{}'), mayHold: 0 });
      },
    } as unknown as Peer;
    const session = new LegacyHttpSession({
      ...{ server: 'a', clock, peer, onSlow: () => {}, lost: () => {}, over: async () => {} },
      renewed: () => {
        world.hold = deferred();
        return () => world.hold?.promise;
      },
      ask: async () => 'known',
      open: () => {
        world.isForgotten = false;
        const opening = deferred();
        opens.push(opening);
        return opening.promise;
      },
    });
    const send = (method: string) => {
      const resend = { refusal: () => world.refusal };
      const options = { deadlineAtMs: clock.nowMs() + 60_000, resend };
      return session.send(method, undefined, options, undefined).then(
        () => 'ok',
        (error: Error) => error.message,
      );
    };
    const readTools = () => {
      const { hold } = world;
      world.hold = undefined;
      hold?.resolve();
    };
    const settle = () => clock.advanceAsync(0);
    return { clock, sent, opens, world, send, readTools, settle };
  }

  test('W28 waits again for the session and its tools if the session is lost meanwhile', async () => {
    const { clock, sent, opens, world, send, readTools, settle } = setUp();
    world.isForgotten = true;
    const call = send('tools/call');
    await settle();
    opens[0]?.resolve();
    await settle();
    // The call waits for the tools of the second session, which is lost: another request detects the loss.
    world.isForgotten = true;
    const other = send('prompts/get');
    await settle();
    readTools();
    await clock.advanceAsync(2_000);
    expect(sent).toEqual(['tools/call', 'prompts/get']);
    opens[1]?.resolve();
    await settle();
    expect([await other, sent]).toEqual(['ok', ['tools/call', 'prompts/get', 'prompts/get']]);
    readTools();
    expect([await call, sent.slice(3)]).toEqual(['ok', ['tools/call']]);
  });

  test('W28 waits for the tools again if the read of the tools begins anew', async () => {
    const { sent, opens, world, send, readTools, settle } = setUp();
    world.isForgotten = true;
    const call = send('tools/call');
    await settle();
    opens[0]?.resolve();
    await settle();
    const first = world.hold;
    world.hold = deferred();
    first?.resolve();
    await settle();
    expect(sent).toEqual(['tools/call']);
    readTools();
    expect([await call, sent]).toEqual(['ok', ['tools/call', 'tools/call']]);
  });

  test.each(['tools/call', 'prompts/get', 'tools/list'])(
    'W11 is not sent if that is no longer allowed: %s',
    async (method) => {
      const { sent, opens, world, send, readTools, settle } = setUp();
      world.isForgotten = true;
      const request = send(method);
      await settle();
      world.refusal = new Error('the server asked for fewer requests');
      opens[0]?.resolve();
      await settle();
      readTools();
      expect([await request, sent]).toEqual(['the server asked for fewer requests', [method]]);
    },
  );
});
