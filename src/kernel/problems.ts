/**
 * Reports events to the embedder, and problems that are not the outcome of a call.
 * Invariant: a report that throws or rejects is ignored and does not interrupt the host.
 */
import { isHostError } from './errors.js';

export type Report = (error: unknown) => void;

/** Default `onProblem`: emits a process warning, which Node prints on stderr and passes to `process.on('warning')`. */
export const warnProcess: Report = (error) => {
  const { message, hint, code } = isHostError(error)
    ? error
    : { message: String(error), hint: undefined, code: 'problem' };
  process.emitWarning(hint === undefined ? message : `${message} (${hint})`, { type: 'HostlerWarning', code });
};

export const withoutThrowing =
  <Given>(report: (given: Given) => void) =>
  (given: Given): void => {
    try {
      // `report` may be an async function.
      void Promise.resolve(report(given) as unknown).catch(() => {});
    } catch {}
  };
