/**
 * The outcome of a call as text, for tests that compare many calls. `failureOf` returns the whole error.
 */
import { isHostError } from '../../src/kernel/errors.js';

export { failureOf } from '../fakes/policy-call.js';

/** `ok` for an answer, else the code of the failure. */
export const outcomeOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'ok',
    (error: unknown) => {
      if (!isHostError(error)) throw error;
      return error.code;
    },
  );
