/**
 * How a call of a host ended, for tests that compare many of them. The whole error is what `failureOf` gives.
 */
import { isHostError } from '../../src/kernel/errors.js';

export { failureOf } from '../fakes/policy-call.js';

/** `ok` where it was answered, else the code of the failure. */
export const outcomeOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'ok',
    (error: unknown) => {
      if (!isHostError(error)) throw error;
      return error.code;
    },
  );
