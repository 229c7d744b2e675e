import { expect, test } from 'vitest';
import { managedSession } from '../../test/fakes/managed-session.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { KeepAlive } from '../kernel/keep-alive.js';
import { ResponseCache } from '../policy/cache.js';
import { CallBudgets } from '../policy/call-budget.js';
import { memoryPinStore } from '../policy/pin-store.js';
import { Pins } from '../policy/pins.js';
import { ToolThrottle } from '../policy/tool-throttle.js';
import type { CallOptions, Session } from '../session/session.js';
import { MAY_HOLD_TTL } from '../wire/json-scan.js';
import type { Answer } from '../wire/peer.js';
import { Audit } from './audit.js';
import { Caller } from './caller.js';
import type { ManagedServer } from './managed-server.js';

type Told = (outcome: Answer | Error) => void;

/** A caller over one server whose session writes down what it is asked, and answers when told. */
function setUp(entry: Record<string, unknown> = {}) {
  const clock = new FakeClock(1_000);
  const asked: { readonly options: CallOptions; readonly answer: Told }[] = [];
  const session = {
    closedBy: undefined,
    heardAtMs: 0,
    facts: { era: 'legacy' },
    askTool: (_name: string, _args: unknown, options: CallOptions, answer: Told) => asked.push({ options, answer }),
    close: () => Promise.resolve(),
  } as unknown as Session;
  const held = { calls: 0 };
  const hold = { enter: () => void held.calls++, leave: () => void held.calls-- };
  let server: ManagedServer | undefined = managedSession('a', session, clock, { pins: 'off', ...entry }, hold);
  const alive = new KeepAlive();
  const caller = new Caller({
    clock,
    guards: () => [],
    pins: new Pins({ store: memoryPinStore() }),
    budgets: new CallBudgets(clock),
    cache: new ResponseCache(clock),
    throttle: new ToolThrottle(clock),
    serverOf: () => {
      if (!server) throw new Error('it is gone');
      return server;
    },
    findServer: () => server,
    targetOf: (managed) => managed,
    mustBeOpen: () => {},
    clean: (text) => text,
    audit: new Audit({ hearsCalls: false, tell: () => {} }, clock),
    alive,
  });
  const remove = () => {
    server = undefined;
  };
  return { clock, asked, caller, held, remove };
}

const minute = 60_000;
const ok = (text = '{"content":[]}'): Answer => ({
  kind: 'result',
  bytes: Buffer.from(text),
  mayHold: text.includes('ttlMs') ? MAY_HOLD_TTL : 0,
});
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test('without a deadline of its caller, a call has the time its server is allowed, and progress moves that to ten minutes', async () => {
  const { clock, asked, caller } = setUp({ timeouts: { call: '5m' } });
  const call = caller.call('a', 'x', {}, {});
  await settle();
  const { deadlineAtMs, extend } = asked[0]?.options ?? {};
  const nowMs = clock.nowMs();
  expect([deadlineAtMs, extend]).toEqual([nowMs + 5 * minute, { byMs: 5 * minute, untilMs: nowMs + 10 * minute }]);
  asked[0]?.answer(ok());
  await call;
});

test('a deadline of its caller is never passed, by progress neither', async () => {
  const { clock, asked, caller } = setUp();
  const call = caller.call('a', 'x', {}, { deadlineMs: 2_000 });
  await settle();
  const untilMs = clock.nowMs() + 2_000;
  expect(asked[0]?.options).toMatchObject({ deadlineAtMs: untilMs, extend: { untilMs } });
  asked[0]?.answer(ok());
  await call;
});

test('an answer that may be kept ends its call, though the server was removed meanwhile', async () => {
  const { asked, caller, held, remove } = setUp();
  const call = caller.call('a', 'x', {}, {});
  await settle();
  remove();
  asked[0]?.answer(ok('{"content":[],"ttlMs":1000}'));
  expect((await call).json()).toEqual({ content: [], ttlMs: 1_000 });
  expect(held.calls).toBe(0);
});

test('a call whose server goes while it is being started ends, though nobody can be asked about its tool', async () => {
  const { asked, caller, held, remove } = setUp();
  const call = caller.call('a', 'x', {}, {});
  remove();
  await expect(call).rejects.toThrow('it is gone');
  expect([asked, held.calls]).toEqual([[], 0]);
});
