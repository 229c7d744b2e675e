/**
 * Takes one of the server's places before a list or a resource is read, or anything else is asked, as concurrency.ts does for calls: whoever reads a lot
 * waits in the same queue as whoever calls a lot.
 * Invariant: each place that is taken is given back once, whatever the reading ends with.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { CallSlots } from './concurrency.js';
import type { Principal } from './operation.js';

export interface SlotLimits {
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
}

/** What is asked, as far as the queue wants to know. */
export interface SlotQuestion {
  readonly server: string;
  readonly method: string;
  readonly principal: Principal;
}

export function throughSlot<T>(
  slots: CallSlots,
  question: SlotQuestion,
  limits: SlotLimits,
  run: () => Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const { server, method: tool, principal } = question;
    slots.take({ server, tool, principal, ...limits }, (refusal) => {
      if (refusal) return reject(refusal);
      run()
        .finally(() => slots.give())
        .then(resolve, reject);
    });
  });
}
