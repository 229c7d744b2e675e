import { describe, expect, test } from 'vitest';
import { failureOf, fakeCall, fakePrincipal, fakeResult, promised, staged } from '../../test/fakes/policy-call.js';
import { type ErrorCode, HostError, type HostErrorOptions } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Call, Done } from './operation.js';
import { defaultThrottlePlan, type ThrottlePlan, ToolThrottle, throttle } from './throttles.js';

type Outcome = 'ok' | 'no' | HostError;

function setUp(plan: Partial<ThrottlePlan> = {}) {
  const clock = new FakeClock();
  const tools = new ToolThrottle(clock, { ...defaultThrottlePlan, ...plan });
  let outcome: Outcome = 'no';
  let sent = 0;
  const send = promised(
    staged(throttle(tools))((_call, done) => {
      sent++;
      done(typeof outcome === 'string' ? fakeResult('{}', { isError: outcome === 'no' }) : outcome);
    }),
  );
  const ends = (next: Outcome) => {
    outcome = next;
  };
  /** Calls this many times; refusals and failures are ignored. */
  const times = async (count: number, part: Partial<Call> = {}) => {
    for (let i = 0; i < count; i++) await send(fakeCall(part)).catch(() => undefined);
  };
  return { clock, tools, send, ends, times, sent: () => sent };
}

const failure = (code: ErrorCode, options: HostErrorOptions = {}) => new HostError(code, 'x', options);

test('D-05 after five rejections in a row the sixth call is refused as rejected, not as unreachable', async () => {
  const { send, times, sent } = setUp();
  await times(5);
  const error = await failureOf(send(fakeCall()));
  expect([error.code, error.retryable, sent()]).toEqual(['tool_throttled', true, 5]);
  expect(error.message).toBe("server 'github' rejected get_issue 5 times in a row");
  expect(error.message).not.toContain('unreachable');
  expect(error.details).toMatchObject({ retryAfterMs: 10_000, execution: 'not_executed', tool: 'get_issue' });
});

test('four rejections are not enough, and any success resets the count', async () => {
  const { send, ends, times, tools } = setUp();
  await times(4);
  ends('ok');
  await send(fakeCall());
  expect(tools.size).toBe(0);
  ends('no');
  await times(4);
  await send(fakeCall());
  await expect(send(fakeCall())).rejects.toThrow('rejected');
});

test('the pause doubles from 10 s to 60 s while the first call after it is rejected too', async () => {
  const { clock, send, times, sent } = setUp();
  await times(5);
  const pauses: (number | undefined)[] = [];
  for (let i = 0; i < 5; i++) {
    const { retryAfterMs } = (await failureOf(send(fakeCall()))).details;
    pauses.push(retryAfterMs);
    clock.advance((retryAfterMs ?? 0) - 1);
    await expect(send(fakeCall())).rejects.toThrow('rejected');
    clock.advance(1);
    await send(fakeCall());
  }
  expect([pauses, sent()]).toEqual([[10_000, 20_000, 40_000, 60_000, 60_000], 10]);
});

test('a success after the pause resets everything', async () => {
  const { clock, ends, send, times } = setUp();
  await times(5);
  clock.advance(10_000);
  ends('ok');
  expect((await send(fakeCall())).isError).toBe(false);
  ends('no');
  // Four more calls, not one: the earlier count is gone.
  await times(4);
  ends('ok');
  expect((await send(fakeCall())).isError).toBe(false);
});

test('D-36 forgetting a server resets its count, but not that of another server', async () => {
  const { send, times, tools } = setUp();
  await times(5);
  await times(5, { server: 'gitlab' });
  tools.forget('github');
  expect((await send(fakeCall())).isError).toBe(true);
  expect((await failureOf(send(fakeCall({ server: 'gitlab' })))).code).toBe('tool_throttled');
});

describe('no other caller is throttled:', () => {
  test.each([
    ['another principal', { principal: fakePrincipal('bob', 'dev') }],
    ['another tool', { tool: 'list_issues' }],
    ['another server', { server: 'gitlab' }],
  ])('%s', async (_name, part) => {
    const { send, times } = setUp();
    await times(20);
    expect((await send(fakeCall(part))).isError).toBe(true);
  });
});

describe('what counts as a rejection', () => {
  test.each([
    ['invalid params of the server', failure('protocol_error', { rpcCode: -32602 })],
    ['invalid params of the server, as the error invalid_arguments', failure('invalid_arguments', { rpcCode: -32602 })],
    ['an error of the tool', failure('tool_error')],
  ])('%s', async (_name, error) => {
    const { ends, send, times } = setUp();
    ends(error);
    await times(5);
    expect((await failureOf(send(fakeCall()))).code).toBe('tool_throttled');
  });

  test.each([
    ['a lost connection', failure('transport', { execution: 'uncertain' })],
    ['a timeout', failure('timeout')],
    ['a refusal of the host', failure('invalid_arguments')],
    ['an open breaker', failure('circuit_open')],
    ['a cancelled call', failure('cancelled')],
    ['another error of the server', failure('protocol_error', { rpcCode: -32603 })],
  ])('%s neither counts nor resets the count', async (_name, error) => {
    const { ends, send, times, tools } = setUp();
    ends(error);
    await times(20);
    expect(tools.size).toBe(0);
    ends('no');
    await times(4);
    ends(error);
    await times(1);
    ends('no');
    await times(1);
    expect((await failureOf(send(fakeCall()))).code).toBe('tool_throttled');
  });
});

test('twenty rejections of concurrent calls cause one pause', async () => {
  const clock = new FakeClock();
  const tools = new ToolThrottle(clock);
  const open: Done[] = [];
  const send = promised(staged(throttle(tools))((_call, done) => void open.push(done)));
  const calls = Array.from({ length: 20 }, () => send(fakeCall()));
  for (const done of open.slice(0, 10)) done(fakeResult('{}', { isError: true }));
  await Promise.all(calls.slice(0, 10));
  expect((await failureOf(send(fakeCall()))).details.retryAfterMs).toBe(10_000);
  clock.advance(10_000);
  for (const done of open.slice(10)) done(fakeResult('{}', { isError: true }));
  await Promise.all(calls);
  expect(tools.admit(fakeCall())).toBe(1);
});

test('of more than ten thousand entries the one with the oldest rejection is forgotten', async () => {
  const { send, times, tools } = setUp({ threshold: 1 });
  for (let i = 0; i <= 10_000; i++) await times(1, { tool: `t${i}` });
  expect(tools.size).toBe(10_000);
  expect((await send(fakeCall({ tool: 't0' }))).isError).toBe(true);
  expect((await failureOf(send(fakeCall({ tool: 't2' })))).code).toBe('tool_throttled');
});

test('the defaults are 5 rejections, 10 s, 60 s', () => {
  expect(defaultThrottlePlan).toEqual({ threshold: 5, pauseMs: 10_000, pauseMsMax: 60_000 });
});
