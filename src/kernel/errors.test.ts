import { describe, expect, test } from 'vitest';
import { ERRORS, HostError, isHostError, thrownText, withoutStack } from './errors.js';

describe('the table of codes', () => {
  test('is closed: adding or renaming a code is a change of interface', () => {
    expect(
      Object.fromEntries(Object.entries(ERRORS).map(([code, { http, rpc, retry }]) => [code, [http, rpc, retry]])),
    ).toEqual({
      invalid_spec: [400, -31001, 'no'],
      invalid_request: [400, -32600, 'no'],
      invalid_arguments: [400, -32602, 'no'],
      unauthenticated: [401, -31002, 'no'],
      denied: [403, -31003, 'no'],
      budget_exceeded: [429, -31004, 'no'],
      server_not_found: [404, -31005, 'no'],
      tool_not_found: [404, -32602, 'no'],
      schema_changed: [409, -31006, 'no'],
      server_stopped: [503, -31007, 'no'],
      server_disabled: [503, -31008, 'no'],
      circuit_open: [503, -31009, 'later'],
      tool_throttled: [429, -31010, 'later'],
      server_parked: [503, -31011, 'later'],
      server_ejected: [503, -31012, 'no'],
      reconnecting: [503, -31013, 'yes'],
      needs_reauth: [401, -31014, 'no'],
      overloaded: [503, -31015, 'yes'],
      connect_failed: [502, -31016, 'maybe'],
      transport: [502, -31017, 'maybe'],
      timeout: [504, -31018, 'maybe'],
      outcome_uncertain: [502, -31019, 'no'],
      expired: [504, -31020, 'no'],
      cancelled: [499, -31021, 'no'],
      tool_error: [200, -31022, 'no'],
      protocol_error: [502, -32603, 'no'],
      result_too_large: [502, -31023, 'no'],
      key_conflict: [409, -31024, 'no'],
      insufficient_storage: [507, -31025, 'later'],
    });
  });

  test('keeps our own codes out of the range that the protocol reserves', () => {
    const standard = [-32600, -32602, -32603];
    for (const { rpc } of Object.values(ERRORS))
      expect(standard.includes(rpc) || rpc < -32768 || rpc > -32000).toBe(true);
  });
});

describe('HostError', () => {
  test('with() copies the error with the given changes, and leaves the original unchanged', () => {
    const cause = new Error('why');
    const error = new HostError('transport', 'm', { server: 's', reason: 'exit', hint: 'wait', cause });
    const other = error.with({ requestId: 'r1', reason: 'gone' });
    expect([other.code, other.message, other.hint, other.cause]).toEqual(['transport', 'm', 'wait', cause]);
    expect([other.details, error.details]).toEqual([
      { server: 's', reason: 'gone', requestId: 'r1' },
      { server: 's', reason: 'exit' },
    ]);
    const uncertain = error.with({ code: 'outcome_uncertain', message: 'n', hint: 'look', cause: error });
    expect([uncertain.code, uncertain.message, uncertain.hint, uncertain.cause]).toEqual([
      ...['outcome_uncertain', 'n', 'look', error],
    ]);
  });

  test('is retryable only if the request certainly did not run', () => {
    expect(new HostError('transport', 'm', { execution: 'not_executed' }).retryable).toBe(true);
    expect(new HostError('transport', 'm', { execution: 'uncertain' }).retryable).toBe(false);
    expect(new HostError('timeout', 'm').retryable).toBe(false);
    expect(new HostError('reconnecting', 'm').retryable).toBe(true);
    expect(new HostError('overloaded', 'm', { execution: 'uncertain' }).retryable).toBe(false);
    expect(new HostError('outcome_uncertain', 'm', { execution: 'not_executed' }).retryable).toBe(false);
  });

  test('as JSON has its details and hint, but not its cause', () => {
    const error = new HostError('transport', 'gone', {
      server: 'files',
      hint: 'reload',
      cause: new Error('sk-secret'),
    });
    expect(error.toJSON()).toEqual({
      code: 'transport',
      message: 'gone',
      retryable: false,
      hint: 'reload',
      server: 'files',
    });
    expect(JSON.stringify(error)).not.toContain('sk-secret');
  });
});

describe('E18 an error that stays in memory', () => {
  test('has the causes of the original, by name, message and code, and no stack', () => {
    const root = Object.assign(new TypeError('no such host'), { code: 'ENOTFOUND' });
    const inner = new HostError('transport', 'inner', { server: 's', hint: 'wait', cause: root });
    const kept = withoutStack(new HostError('connect_failed', 'outer', { reason: 'unexpected', cause: inner }));
    expect(kept.toJSON()).toEqual({ code: 'connect_failed', message: 'outer', retryable: false, reason: 'unexpected' });
    const cause = kept.cause as HostError;
    expect([isHostError(cause), cause.code, cause.message, cause.hint]).toEqual([true, 'transport', 'inner', 'wait']);
    expect(cause.cause).toMatchObject({ name: 'TypeError', message: 'no such host', code: 'ENOTFOUND' });
    for (const each of [kept, cause, cause.cause as Error]) expect(each.stack ?? '').not.toContain('\n    at ');
    expect(cause.cause).not.toBe(root);
  });

  test('has a bounded number of causes of bounded length, of any type', () => {
    let error: unknown = { toString: () => 'x'.repeat(5_000) };
    for (let depth = 0; depth < 10; depth++) error = new Error(`${depth}`, { cause: error });
    let causes = 0;
    for (let at: unknown = withoutStack(new HostError('transport', 'm', { cause: error })); at; causes++)
      at = (at as Error).cause;
    expect(causes).toBe(5);
    const odd = withoutStack(new HostError('transport', 'm', { cause: { toString: () => 'x'.repeat(5_000) } }));
    expect((odd.cause as Error).message).toHaveLength(1_000);
    expect(withoutStack(new HostError('transport', 'm', { cause: Object.create(null) })).cause).toMatchObject({
      message: 'object',
    });
  });

  test('has the readable members of a cause whose other members throw or are not texts', () => {
    const throws = {
      get: () => {
        throw new Error('no');
      },
    };
    const textless = Object.assign(new Error('x'), { message: Object.create(null), name: 7, code: {} });
    const hostile = Object.defineProperties(new TypeError('x'), { message: throws, cause: throws });
    const keptOf = (cause: unknown) => withoutStack(new HostError('transport', 'm', { cause })).cause;
    expect(keptOf(textless)).toMatchObject({ name: 'Error', message: 'object' });
    expect(keptOf(textless)).not.toHaveProperty('code');
    expect(keptOf(hostile)).toMatchObject({ message: 'object' });
    expect(Error.stackTraceLimit).toBeGreaterThan(0);
  });
});

const hostile = Object.defineProperty(new Error('x'), 'message', {
  get: () => {
    throw new Error('no');
  },
});

test.each([
  ['an error', new Error('boom'), 'boom'],
  ['an error without a message', new TypeError(), 'TypeError'],
  ['a text', 'boom', 'boom'],
  ['nothing', undefined, 'undefined'],
  ['an object without a text', Object.create(null), 'object'],
  ['an error whose message throws', hostile, 'object'],
])('the text of a thrown value: %s', (_name, thrown, text) => {
  expect(thrownText(thrown)).toBe(text);
});
