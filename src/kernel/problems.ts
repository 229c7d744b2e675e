/**
 * Reports problems that are not the outcome of a call to the embedder.
 * Invariant: a report that fails, now or later, is the end of it: what the host was doing goes on.
 */
import { isHostError } from './errors.js';

export type Report = (error: unknown) => void;

/**
 * For an embedder who gave no `onProblem`: a mistake in the configuration is still visible, on stderr as Node shows warnings, or to
 * `process.on('warning')`.
 */
export const warnProcess: Report = (error) => {
  const { message, hint, code } = isHostError(error)
    ? error
    : { message: String(error), hint: undefined, code: 'problem' };
  process.emitWarning(hint === undefined ? message : `${message} (${hint})`, { type: 'HostlerWarning', code });
};

export const quietly =
  (report: Report): Report =>
  (error) => {
    try {
      // It may have been written as an async function.
      void Promise.resolve(report(error) as unknown).catch(() => {});
    } catch {
      // An error of the embedder's own handler has no other receiver.
    }
  };
