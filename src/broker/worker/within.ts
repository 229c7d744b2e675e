/** Waits until a time, or until the caller does not want the result any more. */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';

/** `late` makes the error for when the time is over; without it that is no error. */
export function within(
  clock: Clock,
  atMs: number,
  signal: CancelSignal | undefined,
  begin: (resolve: () => void, reject: (error: unknown) => void) => unknown,
  late: (() => HostError) | undefined,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (error: unknown) => {
      cancel();
      signal?.removeEventListener('abort', aborted);
      if (error === undefined) resolve();
      else reject(error);
    };
    const aborted = () =>
      settle(new HostError('cancelled', 'the caller does not wait any more', { execution: 'not_executed' }));
    const cancel = clock.at(atMs, () => settle(late?.()));
    if (signal?.aborted) return aborted();
    signal?.addEventListener('abort', aborted, { once: true });
    begin(() => settle(undefined), settle);
  });
}
