/**
 * Reports what went wrong beside a call to whoever embeds the host.
 * Invariant: a report that fails, now or later, is the end of it: what the host was doing goes on.
 */
export type Report = (error: unknown) => void;

export const quietly =
  (report: Report): Report =>
  (error) => {
    try {
      // It may have been written as an async function.
      void Promise.resolve(report(error) as unknown).catch(() => {});
    } catch {
      // There is nobody else to tell.
    }
  };
