/**
 * A call, an answer and a failure, for the tests of the stages. Each test gives only the members that it needs.
 */
import { HostError } from '../../src/kernel/errors.js';
import {
  type Back,
  type Call,
  CallResult,
  type Done,
  type Operation,
  type Principal,
  pipeline,
  type Send,
  type Stage,
  StageState,
} from '../../src/policy/operation.js';

export const fakePrincipal = (id: string, role?: string): Principal => ({ id, role, scopes: [] });

export const fakeCall = (part: Partial<Call> = {}): Call => ({
  kind: 'call',
  requestId: 'r1',
  principal: fakePrincipal('ann', 'dev'),
  server: 'github',
  tool: 'get_issue',
  method: 'tools/call',
  uri: '',
  args: '{}',
  deadlineAtMs: Number.MAX_SAFE_INTEGER,
  signal: undefined,
  idempotencyKey: undefined,
  onProgress: undefined,
  attempt: 0,
  isFresh: false,
  madeAtMs: 0,
  stage: new StageState(),
  ...part,
});

export const fakeResult = (text = '{}', { isError = false, run = 1 } = {}): CallResult =>
  new CallResult(Buffer.from(text), isError, run, text.includes('ttlMs'), 'modern');

/** A list of tools; a read, or another request, with `part`. */
export const fakeList = (part: Partial<Operation> = {}): Operation => ({
  ...fakeCall(),
  kind: 'list',
  tool: undefined,
  method: 'tools/list',
  args: undefined,
  ...part,
});

/** Sends an operation and reports its outcome. */
export type Ask = (call: Call, done: Done) => void;

/** Wraps a chain of stages. A call that ends twice fails the test. */
export function asked(make: (end: Back) => Send): Ask {
  const told = new Map<Call, Done>();
  const send = make((operation, outcome) => {
    const call = operation as Call;
    const done = told.get(call);
    if (!done) throw new Error('a call ended that is not running');
    told.delete(call);
    done(outcome);
  });
  return (call, done) => {
    if (told.has(call)) throw new Error('the same call is running already');
    told.set(call, done);
    try {
      send(call);
    } catch (error) {
      told.delete(call);
      throw error;
    }
  };
}

/** Joins stages in front of the function that answers. The first one is the outermost. */
export const staged =
  (...stages: readonly (Stage | Stage<Call>)[]) =>
  (answer: Ask): Ask =>
    asked((end) =>
      pipeline(...(stages as Stage[]))(
        (back) => (operation) => answer(operation as Call, (outcome) => back(operation, outcome)),
        end,
      ),
    );

/**
 * Converts to a function that returns a promise, for tests with one call at a time. An error that a stage throws is an outcome too.
 */
export const promised =
  (ask: Ask) =>
  (call: Call): Promise<CallResult> =>
    new Promise((resolve, reject) => {
      ask(call, (outcome) => (outcome instanceof Error ? reject(outcome) : resolve(outcome as CallResult)));
    });

/** Makes the last stage from a function that returns a promise. */
export const answering =
  (run: (call: Call) => Promise<CallResult>): Ask =>
  (call, done) =>
    void run(call).then(done, done);

/** The HostError with which a call ends. Any other outcome fails the test. */
export async function failureOf(outcome: Promise<unknown>): Promise<HostError> {
  const error: unknown = await outcome.then(
    () => new Error('it succeeded'),
    (reason: unknown) => reason,
  );
  if (error instanceof HostError) return error;
  throw error;
}
