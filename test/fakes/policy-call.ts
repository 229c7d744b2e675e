/**
 * A call, an answer and a failure, for the tests of the stages: each test names only what it is about.
 */
import { HostError } from '../../src/kernel/errors.js';
import {
  type Call,
  CallResult,
  type Done,
  type Over,
  type Principal,
  pipeline,
  type Send,
  type Stage,
  StageNotes,
} from '../../src/policy/operation.js';

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
  notes: new StageNotes(),
  ...part,
});

export const fakeResult = (text = '{}', { isError = false, run = 1 } = {}): CallResult =>
  new CallResult(Buffer.from(text), isError, run, text.includes('ttlMs'), 'modern');

/** Sends a call and tells how it went. */
export type Ask = (call: Call, done: Done) => void;

/** Anything that is told at its end how calls went; a call that it ends twice is a failed test. */
export function asked(make: (end: Over) => Send): Ask {
  const told = new Map<Call, Done>();
  const send = make((call, outcome) => {
    const done = told.get(call);
    if (!done) throw new Error('a call ended that is not under way');
    told.delete(call);
    done(outcome);
  });
  return (call, done) => {
    if (told.has(call)) throw new Error('the same call is under way already');
    told.set(call, done);
    try {
      send(call);
    } catch (error) {
      told.delete(call);
      throw error;
    }
  };
}

/** The stages, the first the outermost, in front of whatever answers. */
export const staged =
  (...stages: readonly Stage[]) =>
  (answer: Ask): Ask =>
    asked((end) => pipeline(...stages)((back) => (call) => answer(call, (outcome) => back(call, outcome)), end));

/** As a function that returns a promise, for tests that wait for one call at a time. What a stage throws is an outcome too. */
export const promised =
  (ask: Ask) =>
  (call: Call): Promise<CallResult> =>
    new Promise((resolve, reject) => {
      ask(call, (outcome) => (outcome instanceof Error ? reject(outcome) : resolve(outcome)));
    });

/** The end of the stages, from a function that returns a promise. */
export const answering =
  (run: (call: Call) => Promise<CallResult>): Ask =>
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
