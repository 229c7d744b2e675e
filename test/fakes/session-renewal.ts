/** A `SessionRenewal` for its tests: they answer each `initialize`, and read what it did from a log. */
import { HostError, isHostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { SessionRenewal } from '../../src/session/eras/legacy/session-renewal.js';

/** A renewal whose `initialize` ends when the test says so. */
export function renewalSetup({ hasChannel = true } = {}) {
  const clock = new FakeClock();
  const log: string[] = [];
  const opens: { resolve(): void; reject(error: unknown): void }[] = [];
  const state: { closedBy: HostError | undefined; isBroken: boolean } = { closedBy: undefined, isBroken: false };
  const renewal = new SessionRenewal({
    server: 'a',
    clock,
    reset: () => {
      log.push('held back');
      if (state.isBroken) throw new Error('a mistake');
      if (!hasChannel) return undefined;
      return { opened: () => log.push('opened'), failed: (error) => log.push(`failed ${error.details.reason}`) };
    },
    open: () => {
      log.push(`initialize at ${clock.nowMs()}`);
      return new Promise((resolve, reject) => opens.push({ resolve, reject }));
    },
    closedBy: () => state.closedBy,
    onSlow: () => log.push('slow'),
    renewed: () => log.push('renewed'),
    lost: () => log.push('lost'),
    over: async () => void log.push('over'),
  });
  const within = (deadlineMs = 60_000, signal?: AbortSignal) =>
    renewal.within({ method: 'tools/call', deadlineAtMs: clock.nowMs() + deadlineMs, signal }, renewal.count).then(
      () => 'renewed',
      (error: unknown) => {
        if (!isHostError(error)) throw error;
        const { execution, reason, retryAfterMs } = error.details;
        return [error.code, reason, execution, retryAfterMs];
      },
    );
  const settle = () => clock.advanceAsync(0);
  return { clock, log, opens, state, renewal, within, settle };
}

export const rpcError = () => new HostError('protocol_error', 'no', { rpcCode: -32603, execution: 'uncertain' });
/** What a request is told if the renewal failed for no reason of its own. */
export const notRenewed = ['transport', 'session_not_renewed', 'not_executed', 1_000];
