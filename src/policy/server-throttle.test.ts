import { describe, expect, test } from 'vitest';
import {
  answering,
  failureOf,
  fakeCall,
  fakeList,
  fakeResult,
  promised,
  staged,
} from '../../test/fakes/policy-call.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Call, CallResult } from './operation.js';
import { noteThrottling, refuseThrottled, ServerThrottle } from './throttles.js';

const enough = (retryAfterMs?: number, httpStatus = 429) =>
  new HostError('overloaded', `server 'github' is overloaded (${httpStatus})`, {
    server: 'github',
    httpStatus,
    reason: 'http_status',
    execution: 'uncertain',
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });

/** The stage in front of a server that answers as the test says. */
function setUp() {
  const clock = new FakeClock(1_000);
  const servers = new ServerThrottle(clock);
  const world = { answer: undefined as HostError | undefined, reached: 0 };
  const send = promised(
    staged(
      refuseThrottled(servers),
      noteThrottling(servers),
    )(
      answering(async () => {
        world.reached++;
        if (world.answer) throw world.answer;
        return fakeResult();
      }),
    ),
  );
  return { clock, servers, world, send };
}

describe('W11 a server that asks for fewer requests', () => {
  test.each([429, 503])('with %d and Retry-After gets none for that time: 1 of 200 calls is sent', async (status) => {
    const { clock, world, send } = setUp();
    world.answer = enough(20_000, status);
    const first = await failureOf(send(fakeCall()));
    expect([first.code, first.details.reason, first.details.retryAfterMs]).toEqual(['overloaded', 'throttled', 20_000]);
    for (let i = 1; i < 200; i++) {
      clock.advance(100);
      const refused = await failureOf(send(fakeCall({ tool: `tool-${i}` })));
      if (clock.nowMs() < 21_000)
        expect(refused.details).toMatchObject({
          reason: 'throttled',
          execution: 'not_executed',
          retryAfterMs: 21_000 - clock.nowMs(),
        });
    }
    expect(world.reached).toBe(1);
    clock.advance(100);
    world.answer = undefined;
    await send(fakeCall());
    expect(world.reached).toBe(2);
  });

  test('for longer than five minutes is tried again after five', async () => {
    const { clock, world, send } = setUp();
    world.answer = enough(86_400_000);
    expect((await failureOf(send(fakeCall()))).details.retryAfterMs).toBe(300_000);
    clock.advance(299_999);
    await failureOf(send(fakeCall()));
    expect(world.reached).toBe(1);
    clock.advance(1);
    await failureOf(send(fakeCall()));
    expect(world.reached).toBe(2);
  });

  test.each([undefined, 0])('without saying for how long (%s) waits 1 s, doubling to 30 s', async (retryAfterMs) => {
    const { clock, world, send } = setUp();
    world.answer = enough(retryAfterMs);
    const waits: (number | undefined)[] = [];
    for (let i = 0; i < 7; i++) {
      const waitMs = (await failureOf(send(fakeCall()))).details.retryAfterMs;
      waits.push(waitMs);
      clock.advance(waitMs as number);
    }
    expect(waits).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    expect(world.reached).toBe(7);
    world.answer = undefined;
    await send(fakeCall());
    world.answer = enough(retryAfterMs);
    expect((await failureOf(send(fakeCall()))).details.retryAfterMs).toBe(1_000);
  });

  test('in the answers to many requests in flight is paused once: these answers neither double nor end the pause', () => {
    const clock = new FakeClock();
    const servers = new ServerThrottle(clock);
    for (let i = 0; i < 64; i++) servers.failed('a', enough());
    expect(servers.leftMs('a')).toBe(1_000);
    servers.succeeded('a');
    expect(servers.leftMs('a')).toBe(1_000);
    servers.failed('a', enough(5_000));
    servers.failed('a', enough(2_000));
    expect(servers.leftMs('a')).toBe(5_000);
    clock.advance(5_000);
    servers.failed('a', enough());
    expect(servers.leftMs('a')).toBe(2_000);
  });

  test('is throttled alone: others are not, and the throttle is forgotten with the name', () => {
    const servers = new ServerThrottle(new FakeClock());
    servers.failed('a', enough(5_000));
    expect([servers.refusal('a')?.code, servers.refusal('b'), servers.size]).toEqual(['overloaded', undefined, 1]);
    servers.forget('a');
    expect([servers.refusal('a'), servers.size]).toEqual([undefined, 0]);
  });

  test('is recognised by the HTTP status: refusals of the host, and failures, throttle nothing', async () => {
    const { servers, world, send } = setUp();
    for (const error of [
      new HostError('overloaded', 'full', { reason: 'queue', retryAfterMs: 500 }),
      new HostError('transport', '503', { httpStatus: 503 }),
      new HostError('tool_error', 'no', { rpcCode: 429 }),
    ]) {
      world.answer = error;
      expect(await failureOf(send(fakeCall()))).toBe(error);
    }
    expect(servers.size).toBe(0);
  });
});

test('W11 while nothing is throttled, no call reads the clock', async () => {
  let reads = 0;
  const clock: Clock = { ...new FakeClock(), nowMs: () => ++reads } as unknown as Clock;
  const servers = new ServerThrottle(clock);
  const send = promised(staged(refuseThrottled(servers), noteThrottling(servers))(answering(async () => fakeResult())));
  for (let i = 0; i < 100; i++) await send(fakeCall());
  expect(reads).toBe(0);
  servers.failed('other', enough(1_000));
  reads = 0;
  for (let i = 0; i < 100; i++) await send(fakeCall());
  expect(reads).toBe(0);
});

test('W11 lists and reads are refused during a pause, and can begin one, as calls do', async () => {
  const clock = new FakeClock();
  const servers = new ServerThrottle(clock);
  let reached = 0;
  const ok = fakeResult();
  const stages = staged(refuseThrottled(servers), noteThrottling(servers));
  const read = (outcome: Error | CallResult) => {
    const send = stages((_operation, done) => {
      reached++;
      done(outcome);
    });
    return promised(send)(fakeList({ kind: 'read' }) as Call);
  };
  expect(await read(ok)).toBe(ok);
  expect((await failureOf(read(enough(3_000)))).details).toMatchObject({ reason: 'throttled', retryAfterMs: 3_000 });
  expect((await failureOf(read(ok))).details).toMatchObject({ reason: 'throttled', execution: 'not_executed' });
  expect(reached).toBe(2);
  clock.advance(3_000);
  expect([await read(ok), servers.size]).toEqual([ok, 0]);
});
