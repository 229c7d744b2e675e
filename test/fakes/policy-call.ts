/**
 * A call, an answer and a failure, for the tests of the stages: each test names only what it is about.
 */
import { HostError } from '../../src/kernel/errors.js';
import { type Call, CallResult, type Principal, type Send, sent } from '../../src/policy/call.js';

export const fakePrincipal = (id: string, role?: string): Principal => ({ id, role, scopes: [] });

export const fakeCall = (part: Partial<Call> = {}): Call => ({
  requestId: 'r1',
  principal: fakePrincipal('ann', 'dev'),
  server: 'github',
  tool: 'get_issue',
  args: '{}',
  deadlineAtMs: Number.MAX_SAFE_INTEGER,
  signal: undefined,
  idempotencyKey: undefined,
  onProgress: undefined,
  attempt: 0,
  isFresh: false,
  madeAtMs: 0,
  ...part,
});

export const fakeResult = (text = '{}', { isError = false, run = 1 } = {}): CallResult =>
  new CallResult(Buffer.from(text), isError, run, text.includes('ttlMs'), 'modern');

/** A pipeline as a function that returns a promise, for tests that wait for one call at a time. */
export const promised = (send: Send) => (call: Call) => sent(send, call);

/** The end of a pipeline, from a function that returns a promise. */
export const answering =
  (run: (call: Call) => Promise<CallResult>): Send =>
  (call, done) =>
    void run(call).then(done, done);

/** The HostError a call ends with; anything else is a failed test. */
export async function failureOf(outcome: Promise<unknown>): Promise<HostError> {
  const error: unknown = await outcome.then(
    () => new Error('it succeeded'),
    (reason: unknown) => reason,
  );
  if (error instanceof HostError) return error;
  throw error;
}
