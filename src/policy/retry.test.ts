import { describe, expect, test } from 'vitest';
import { ERRORS, type ErrorCode, type Execution, HostError, type SendPhase } from '../kernel/errors.js';
import type { ToolTraits } from './operation.js';
import { mayReplay, replayReason, replaysMax, toOutcome } from './retry.js';

const traits = (part: Partial<ToolTraits> = {}): ToolTraits => ({
  isReadOnly: false,
  isIdempotent: false,
  isTrusted: false,
  ...part,
});
const plain = traits({ isTrusted: true });
const readOnly = traits({ isReadOnly: true, isTrusted: true });
const failure = (code: ErrorCode, phase: SendPhase | undefined, execution?: Execution) =>
  new HostError(code, `server 'x': ${code}`, {
    server: 'x',
    ...(phase === undefined ? {} : { phase }),
    ...(execution === undefined ? {} : { execution }),
  });
const executionOf = (phase: SendPhase): Execution => (phase === 'queued' ? 'not_executed' : 'uncertain');
const ask = (
  error: HostError,
  of: ToolTraits,
  part: { attempt?: number; callerAttempt?: number; leftMs?: number } = {},
) =>
  mayReplay({
    error,
    traits: of,
    attempt: part.attempt ?? 0,
    callerAttempt: part.callerAttempt ?? 0,
    deadlineLeftMs: part.leftMs ?? 1_000,
  });

const phases = ['queued', 'writing', 'written', 'answered'] as const;
const tools = [
  ['plain', {}],
  ['read-only', { isReadOnly: true }],
  ['idempotent', { isIdempotent: true }],
  ['read-only and idempotent', { isReadOnly: true, isIdempotent: true }],
] as const;

describe('K4 a call whose connection breaks', () => {
  const table = phases.flatMap((phase) =>
    tools.flatMap(([tool, hints]) =>
      [true, false].map((isTrusted) => {
        const may = phase === 'queued' || (isTrusted && tool !== 'plain');
        return [phase, tool, isTrusted ? 'trusted' : 'not trusted', may, { ...hints, isTrusted }] as const;
      }),
    ),
  );
  test.each(table)('phase %s, %s tool, annotations %s: sent again %s', (phase, _tool, _trust, may, hints) => {
    const error = failure('transport', phase, executionOf(phase));
    expect(ask(error, traits(hints))).toBe(may);
    const told = toOutcome(error, traits(hints));
    expect(told.code).toBe(may ? 'transport' : 'outcome_uncertain');
  });

  test('of 200,000 calls that may have run, none of a plain or untrusted tool is sent again', () => {
    let asked = 0;
    const codes = Object.keys(ERRORS) as ErrorCode[];
    for (const of of [traits(), plain, traits({ isReadOnly: true }), traits({ isIdempotent: true })]) {
      for (const code of codes) {
        for (const phase of [undefined, ...phases]) {
          for (const execution of [undefined, 'uncertain'] as const) {
            for (let leftMs = 0; leftMs < 200; leftMs++) {
              asked++;
              if (ask(failure(code, phase, execution), of, { leftMs })) expect.fail(`${code} ${phase} ${execution}`);
            }
          }
        }
      }
    }
    expect(asked).toBeGreaterThan(200_000);
  });
});

describe('nothing is sent again', () => {
  test.each(['queued', 'written'] as const)('more than twice (%s)', (phase) => {
    const error = failure('transport', phase, executionOf(phase));
    expect([0, 1, 2, 3].map((attempt) => ask(error, readOnly, { attempt }))).toEqual([true, true, false, false]);
    expect(replaysMax).toBe(2);
  });

  test.each(['queued', 'written'] as const)('when the caller itself is retrying (%s)', (phase) => {
    expect(ask(failure('transport', phase, executionOf(phase)), readOnly, { callerAttempt: 1 })).toBe(false);
  });

  test('without time left', () => {
    const error = failure('transport', 'queued', 'not_executed');
    expect([-5, 0, 0.5, 1].map((leftMs) => ask(error, readOnly, { leftMs }))).toEqual([false, false, false, true]);
  });

  test.each(phases)('W15 after a timeout, in any phase of the call (%s)', (phase) => {
    for (const of of [plain, readOnly, traits({ isIdempotent: true, isTrusted: true })])
      expect(ask(failure('timeout', phase, executionOf(phase)), of)).toBe(false);
  });

  test('after it was sent and cancelled', () => {
    expect(ask(failure('cancelled', 'written', 'uncertain'), readOnly)).toBe(false);
  });

  test('before the time that the server asked for', () => {
    const error = new HostError('transport', 'x', { execution: 'not_executed', retryAfterMs: 500 });
    expect(ask(error, readOnly)).toBe(false);
  });

  test.each(
    (Object.keys(ERRORS) as ErrorCode[]).filter(
      (code) => !['connect_failed', 'transport', 'protocol_error'].includes(code),
    ),
  )('after the error %s, whether the call was sent or not', (code) => {
    expect(phases.map((phase) => ask(failure(code, phase, executionOf(phase)), readOnly))).not.toContain(true);
  });

  test('when the server answered with an error of its own', () => {
    const answered = new HostError('protocol_error', 'x', { rpcCode: -32603, reason: 'rpc_error' });
    const refused = new HostError('protocol_error', 'x', { httpStatus: 404, execution: 'not_executed' });
    expect([ask(answered, readOnly), ask(refused, readOnly)]).toEqual([false, false]);
  });
});

test('a call that was queued when a broken message ended the connection is sent again', () => {
  expect(ask(failure('protocol_error', 'queued', 'not_executed'), plain)).toBe(true);
  expect(ask(failure('protocol_error', 'written', 'uncertain'), plain)).toBe(false);
});

describe('the error for the caller', () => {
  test.each(['transport', 'timeout', 'connect_failed', 'protocol_error'] as const)(
    'D-04 %s of a tool that must not run twice and may have run is outcome_uncertain and keeps its details',
    (code) => {
      const error = new HostError(code, "server 'x': gone", {
        server: 'x',
        tool: 'pay',
        phase: 'written',
        execution: 'uncertain',
        exitCode: 9,
      });
      const told = toOutcome(error, plain);
      expect([told.code, told.cause, told.retryable]).toEqual(['outcome_uncertain', error, false]);
      expect(told.message).toBe("server 'x': gone; the call may have run");
      expect(told.hint).toBe('look at its effect before sending it again');
      expect(told.details).toEqual({
        server: 'x',
        tool: 'pay',
        phase: 'written',
        execution: 'uncertain',
        exitCode: 9,
        reason: code,
      });
    },
  );

  test('the reason of the original error is kept if there is one', () => {
    const error = new HostError('transport', 'x', { reason: 'exit', execution: 'uncertain' });
    expect(toOutcome(error, plain).details.reason).toBe('exit');
  });

  test.each([
    ['a call that was not sent', failure('transport', 'queued', 'not_executed'), plain],
    ['a tool that may run twice', failure('timeout', 'written', 'uncertain'), readOnly],
    ['a cancelled call', failure('cancelled', 'written', 'uncertain'), plain],
    ['an answer that is too large', failure('result_too_large', 'answered', 'uncertain'), plain],
    ['an error the server answered with', new HostError('protocol_error', 'x', { rpcCode: -32603 }), plain],
    ['a refusal', failure('circuit_open', undefined), plain],
    ['a server that could not be started', failure('connect_failed', undefined), plain],
  ])('%s keeps its error', (_name, error, of) => {
    expect(toOutcome(error, of)).toBe(error);
  });

  test.each(['transport', 'timeout'] as const)('%s without a statement about execution counts as uncertain', (code) => {
    expect(toOutcome(failure(code, undefined), plain).code).toBe('outcome_uncertain');
  });
});

test('why a call may be sent again: it was not executed, or it may run twice', () => {
  const reasonOf = (phase: SendPhase, of: ToolTraits) =>
    replayReason({
      error: failure('transport', phase, executionOf(phase)),
      traits: of,
      attempt: 0,
      callerAttempt: 0,
      deadlineLeftMs: 1_000,
    });
  expect([reasonOf('queued', plain), reasonOf('written', readOnly), reasonOf('written', plain)]).toEqual([
    'not_executed',
    'may_run_twice',
    undefined,
  ]);
});
