/**
 * Decides when a host that a relay started ends by itself: after `idleExit` without a client.
 * Not here: what counts as use (usage.ts).
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

/** Counts the uses of a host. */
export interface Usage {
  /** Uses at this moment: relays, HTTP requests and streams, workers, running calls, leases. */
  readonly open: number;
  /** Uses since the start that may begin and end between two samples. */
  readonly total: number;
}

type IdleState =
  | { readonly kind: 'busy' }
  | { readonly kind: 'idle'; readonly sinceMs: number; readonly total: number };

const firstIdleState: IdleState = { kind: 'busy' };

/** Undefined: the host has been idle for `idleMs` and ends. */
function idleStep(state: IdleState, { open, total }: Usage, nowMs: number, idleMs: number): IdleState | undefined {
  if (open > 0) return { kind: 'busy' };
  if (state.kind === 'busy' || state.total !== total) return { kind: 'idle', sinceMs: nowMs, total };
  return nowMs - state.sinceMs >= idleMs ? undefined : state;
}

const samplesPerWait = 30;
const sampleMsMax = 1_000;

/** Calls `onIdle` once. `idleMs` is read for each sample, because an edit may change it; 0 means never. */
export function watchIdle(clock: Clock, idleMs: () => number, usage: () => Usage, onIdle: () => void): Cancel {
  let state: IdleState = firstIdleState;
  let cancel: Cancel = () => {};
  const sample = () => {
    const limitMs = idleMs();
    const now = usage();
    const next = limitMs === 0 ? firstIdleState : idleStep(state, now, clock.nowMs(), limitMs);
    if (next === undefined) return onIdle();
    state = next;
    cancel = clock.at(
      clock.nowMs() + Math.min(sampleMsMax, Math.ceil(limitMs / samplesPerWait) || sampleMsMax),
      sample,
    );
  };
  sample();
  return () => cancel();
}
