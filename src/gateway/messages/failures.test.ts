import { describe, expect, test } from 'vitest';
import { ERRORS, type ErrorCode, HostError } from '../../kernel/errors.js';
import { RpcRefusal } from '../../session/rpc-response.js';
import { callFailure, type FailureContext, requestFailure, translateError } from './failures.js';

const context: FailureContext = {
  method: 'tools/call',
  clientEra: 'legacy',
  server: 's',
  serverEra: 'legacy',
  tool: 't',
  serverInfo: '{}',
};

/** Failures that become JSON-RPC errors. Any other failure becomes a tool result with `isError`. */
const protocolErrors = ['invalid_request', 'invalid_arguments', 'unauthenticated', 'tool_not_found', 'cancelled'];

describe('a tool call that fails with', () => {
  test.each(Object.keys(ERRORS) as ErrorCode[])('%s', (code) => {
    const told = callFailure(new HostError(code, 'it did not work'), context);
    if (protocolErrors.includes(code)) {
      expect(told).toMatchObject({ failure: { code: ERRORS[code].rpc, message: 'it did not work.' } });
      return;
    }
    const result = JSON.parse('result' in told ? told.result : '{}');
    expect(result).toMatchObject({ isError: true, content: [{ type: 'text', text: 'it did not work.' }] });
    expect(result._meta['hostler/error']).toMatchObject({ code, server: 's', tool: 't' });
  });
});

test('the stored cause is not shown to the client', () => {
  const cause = new Error('secret');
  const error = new HostError('transport', 'the pipe broke', { cause, exitCode: 3 });
  expect(JSON.stringify(callFailure(error, context))).not.toContain('secret');
  expect(JSON.stringify(requestFailure(cause, context))).not.toContain('secret');
});

test('`retryable` follows from the execution that the error states', () => {
  const facts = (error: HostError) => JSON.parse(String(requestFailure(error, context).data));
  expect(facts(new HostError('transport', 'x', { execution: 'not_executed' })).retryable).toBe(true);
  expect(facts(new HostError('transport', 'x', { execution: 'uncertain' })).retryable).toBe(false);
});

test('W11 a client learns why the server is overloaded, and when to retry', () => {
  const error = new HostError('overloaded', 'x', {
    reason: 'throttled',
    retryAfterMs: 2_000,
    execution: 'not_executed',
  });
  expect(JSON.parse(String(requestFailure(error, context).data))).toEqual({
    ...{ code: 'overloaded', retryable: true, reason: 'throttled', retryAfterMs: 2_000, server: 's', tool: 't' },
  });
});

test('an answer without a usable code is an internal error', () => {
  const cause = new RpcRefusal(Buffer.from('{"message":"m"}'));
  const error = new HostError('tool_error', 's/t: m', { rpcCode: 0, cause });
  expect(requestFailure(error, context)).toEqual({ code: -32603, message: 'm' });
});

test.each([
  ['legacy', -32603],
  ['modern', -32021],
] as const)('the error of a modern server for a missing capability is, for a %s client, %i', (clientEra, code) => {
  const bytes = Buffer.from('{"code":-32021,"message":"needs sampling"}');
  expect(translateError(bytes, { ...context, clientEra, serverEra: 'modern' })).toMatchObject({
    code,
    message: 'needs sampling',
  });
});

describe('E13 an error code of a server, for a modern client', () => {
  const eras = ['legacy', 'modern'] as const;
  const cases = [
    // Resource not found.
    [-32002, -32602],
    // URL elicitation.
    [-32042, -32603],
    ...[-32000, -32001, -32003, -32019, -32023, -32050, -32099, -32100, -32768].map((code) => [code, -32603] as const),
    ...[-32700, -32600, -32601, -32602, -32603].map((code) => [code, code] as const),
    // A code of the server itself.
    ...[-32769, -31999, -1, 1, 42].map((code) => [code, code] as const),
  ] as const;
  test.each(eras.flatMap((serverEra) => cases.map((row) => [serverEra, ...row] as const)))(
    'of a %s server: %i becomes %i, with its message and data',
    (serverEra, code, expected) => {
      const bytes = Buffer.from(`{"code":${code},"message":"m","data":{"uri":"a:b"}}`);
      const failure = translateError(bytes, { ...context, clientEra: 'modern', serverEra });
      expect({ ...failure, data: String(failure.data) }).toEqual({
        code: expected,
        message: 'm',
        data: '{"uri":"a:b"}',
      });
    },
  );

  test('a legacy client gets the code of a legacy server unchanged', () => {
    for (const code of [-32002, -32000, -32099])
      expect(translateError(Buffer.from(`{"code":${code},"message":"m"}`), context).code).toBe(code);
  });

  test('the modern code for a missing capability is -32603 if a legacy server sends it', () => {
    const bytes = Buffer.from('{"code":-32021,"message":"m"}');
    expect(translateError(bytes, { ...context, clientEra: 'modern', serverEra: 'legacy' }).code).toBe(-32603);
  });
});
