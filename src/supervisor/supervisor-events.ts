/**
 * The events of supervised servers, one stream for all servers of a host, and the queue that emits them in order.
 * Not here: the choice of a safe time to emit (supervisor.ts).
 *
 * Invariants: an event has the time at which it happened, not at which it is emitted. Events that a listener causes are emitted
 * after the current one, to all listeners. An idle server has no queue in memory.
 */
import type { Emitter } from '../kernel/emitter.js';
import type { Freeze } from './correlated-failures.js';
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
  /** `repeats`: how many times in a row the server was parked for this reason before. Log the first one and count the rest. */
  | { readonly kind: 'parked'; readonly reason: Reason; readonly nextProbeAtMs: number; readonly repeats: number }
  | { readonly kind: 'ejected'; readonly reason: Reason }
  | { readonly kind: 'auth_required'; readonly reason: Reason }
  /** The server is ready again after it was parked, ejected or without authorization for `afterMs`. */
  | { readonly kind: 'revived'; readonly afterMs: number }
  | { readonly kind: 'proven' }
  | { readonly kind: 'close_failed'; readonly error: unknown }
  /**
   * A fault of the whole host: for `forMs` no failure is charged to a server. Emitted once per freeze, for the server that
   * revealed it. `servers`: the servers that failed together, or the server whose timer was late.
   */
  | ({ readonly kind: 'freeze' } & Freeze)
);

const kinds = {
  state: true,
  restart: true,
  parked: true,
  ejected: true,
  auth_required: true,
  revived: true,
  proven: true,
  close_failed: true,
  freeze: true,
} as const satisfies Record<SupervisorEvent['kind'], true>;

export const supervisorEventKinds = Object.keys(kinds) as readonly SupervisorEvent['kind'][];

export interface SupervisorEvents {
  readonly supervisor: SupervisorEvent;
}

type UnstampedEvent = SupervisorEvent extends infer Event
  ? Event extends SupervisorEvent
    ? Omit<Event, 'atMs' | 'server'>
    : never
  : never;

export class EventQueue {
  readonly #server: string;
  readonly #events: Emitter<SupervisorEvents>;
  /** Empty again when `emit` returns. */
  #pending: (UnstampedEvent & { readonly atMs: number })[] | undefined;
  #isEmitting = false;
  #outSinceMs: number | undefined;
  #parkedFor: Reason | undefined;
  #repeats = 0;

  constructor(server: string, events: Emitter<SupervisorEvents>) {
    this.#server = server;
    this.#events = events;
  }

  add(event: UnstampedEvent, atMs: number): void {
    this.#pending ??= [];
    this.#pending.push({ ...event, atMs });
  }

  /** Adds the events of one state change. True: the change proves the server. */
  changed(before: ServerState, after: ServerState, nowMs: number, restarts: number): boolean {
    if (before.kind !== after.kind) this.#entered(before, after, nowMs, restarts);
    if (!isProven(after) || isProven(before)) return false;
    this.#parkedFor = undefined;
    this.add({ kind: 'proven', run: after.run }, nowMs);
    return true;
  }

  emit(): void {
    if (this.#isEmitting || !this.#pending) return;
    this.#isEmitting = true;
    const server = this.#server;
    try {
      for (let next = this.#pending.shift(); next; next = this.#pending.shift())
        this.#events.emit('supervisor', { ...next, server });
      this.#pending = undefined;
    } finally {
      this.#isEmitting = false;
    }
  }

  #entered({ kind: from }: ServerState, after: ServerState, nowMs: number, restarts: number): void {
    const { run, kind } = after;
    this.add({ kind: 'state', run, from, to: kind }, nowMs);
    switch (kind) {
      case 'backing_off': {
        const { reason, retryAtMs } = after;
        this.add({ kind: 'restart', run, restarts, reason, delayMs: Math.max(0, retryAtMs - nowMs) }, nowMs);
        break;
      }
      case 'parked': {
        const { reason, nextProbeAtMs } = after;
        this.#outSinceMs ??= nowMs;
        this.add({ kind, run, reason, nextProbeAtMs, repeats: this.#parkedAgain(reason) }, nowMs);
        break;
      }
      case 'ejected':
      case 'auth_required':
        this.#outSinceMs ??= nowMs;
        this.add({ kind, run, reason: after.reason }, nowMs);
        break;
      case 'ready':
        if (this.#outSinceMs !== undefined)
          this.add({ kind: 'revived', run, afterMs: nowMs - this.#outSinceMs }, nowMs);
        this.#outSinceMs = undefined;
        break;
      default:
    }
  }

  #parkedAgain(reason: Reason): number {
    const isSame = reason.code === this.#parkedFor?.code && reason.message === this.#parkedFor.message;
    this.#repeats = isSame ? this.#repeats + 1 : 0;
    // The same object as in the state, not a copy: thousands of servers may be parked.
    this.#parkedFor = reason;
    return this.#repeats;
  }
}

const isProven = (state: ServerState): boolean =>
  (state.kind === 'ready' || state.kind === 'suspect') && state.isProven;
