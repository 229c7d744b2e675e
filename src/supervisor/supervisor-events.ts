/**
 * What a supervisor tells the world: one stream, shared by all servers, that log, metrics and dashboard read alike.
 * Not here: deciding anything. A listener that throws or calls back disturbs nobody.
 */
import type { Reason } from './restart-plan.js';
import type { ServerState } from './server-state.js';

export type SupervisorEvent = {
  /** On the host's clock. */
  readonly atMs: number;
  readonly server: string;
  readonly run: number;
} & (
  | { readonly kind: 'state'; readonly from: ServerState['kind']; readonly to: ServerState['kind'] }
  /** A run failed and the next one follows after `delayMs`. */
  | { readonly kind: 'restart'; readonly restarts: number; readonly delayMs: number; readonly reason: Reason }
  /** `repeats`: how often in a row it was parked for this very reason before. Log those once, and count. */
  | { readonly kind: 'parked'; readonly reason: Reason; readonly nextProbeAtMs: number; readonly repeats: number }
  | { readonly kind: 'ejected' | 'auth_required'; readonly reason: Reason }
  /** Ready again after it was parked, ejected or without authorization for `afterMs`. */
  | { readonly kind: 'revived'; readonly afterMs: number }
  | { readonly kind: 'proven' }
  | { readonly kind: 'close_failed'; readonly error: unknown }
);

/** The map for an Emitter. */
export interface SupervisorEvents {
  readonly supervisor: SupervisorEvent;
}

/** An event before it is stamped. */
export type Told = SupervisorEvent extends infer Event
  ? Event extends SupervisorEvent
    ? Omit<Event, 'atMs' | 'server'>
    : never
  : never;

/** Turns changes of state into events. Remembers only what an event says about earlier ones. */
export class Narrator {
  #outSinceMs: number | undefined;
  #parkedFor: string | undefined;
  #repeats = 0;

  /** What to say about this change, in order. */
  tell(before: ServerState, after: ServerState, nowMs: number, restarts: number): Told[] {
    const { run } = after;
    const told = before.kind === after.kind ? [] : this.#entered(before, after, nowMs, restarts);
    if (isProven(after) && !isProven(before)) {
      this.#parkedFor = undefined;
      told.push({ kind: 'proven', run });
    }
    return told;
  }

  #entered({ kind: from }: ServerState, after: ServerState, nowMs: number, restarts: number): Told[] {
    const { run, kind } = after;
    const state: Told = { kind: 'state', run, from, to: kind };
    switch (kind) {
      case 'backing_off': {
        const { reason, retryAtMs } = after;
        return [state, { kind: 'restart', run, restarts, reason, delayMs: Math.max(0, retryAtMs - nowMs) }];
      }
      case 'parked': {
        const { reason, nextProbeAtMs } = after;
        this.#outSinceMs ??= nowMs;
        return [state, { kind, run, reason, nextProbeAtMs, repeats: this.#parkedAgain(reason) }];
      }
      case 'ejected':
      case 'auth_required':
        this.#outSinceMs ??= nowMs;
        return [state, { kind, run, reason: after.reason }];
      case 'ready': {
        const outSinceMs = this.#outSinceMs;
        this.#outSinceMs = undefined;
        return outSinceMs === undefined ? [state] : [state, { kind: 'revived', run, afterMs: nowMs - outSinceMs }];
      }
      default:
        return [state];
    }
  }

  #parkedAgain({ code, message }: Reason): number {
    const reason = JSON.stringify([code, message]);
    this.#repeats = reason === this.#parkedFor ? this.#repeats + 1 : 0;
    this.#parkedFor = reason;
    return this.#repeats;
  }
}

const isProven = (state: ServerState): boolean =>
  (state.kind === 'ready' || state.kind === 'suspect') && state.isProven;
