/**
 * Turns what happens to one server into events, and tells them in order.
 * Not here: what there is to tell (supervisor-events.ts), when it is safe to tell it (supervisor.ts).
 *
 * Invariants: an event bears the instant of what it tells, not that of its telling; what a listener causes is told after
 * what it heard, to everybody; what is remembered of earlier events is only what a later one says about them; a server at
 * rest keeps no room for what there is to tell.
 */
import type { Emitter } from '../kernel/emitter.js';
import type { Reason } from './restart-plan.js';
import type { ServerState } from './server-state.js';
import type { SupervisorEvents, Told } from './supervisor-events.js';

export interface NarratorParts {
  readonly name: string;
  readonly events: Emitter<SupervisorEvents>;
}

export class Narrator {
  readonly #parts: NarratorParts;
  /** Empty again before control goes back to whoever let it tell. */
  #untold: (Told & { readonly atMs: number })[] | undefined;
  #isTelling = false;
  #outSinceMs: number | undefined;
  #parkedFor: Reason | undefined;
  #repeats = 0;

  constructor(parts: NarratorParts) {
    this.#parts = parts;
  }

  /** Is told when `tell` is called. */
  note(told: Told, atMs: number): void {
    this.#untold ??= [];
    this.#untold.push({ ...told, atMs });
  }

  /** What this change is, in events; true when it proves the server. */
  changed(before: ServerState, after: ServerState, nowMs: number, restarts: number): boolean {
    if (before.kind !== after.kind) this.#entered(before, after, nowMs, restarts);
    if (!isProven(after) || isProven(before)) return false;
    this.#parkedFor = undefined;
    this.note({ kind: 'proven', run: after.run }, nowMs);
    return true;
  }

  tell(): void {
    if (this.#isTelling || !this.#untold) return;
    this.#isTelling = true;
    const { name: server, events } = this.#parts;
    try {
      for (let next = this.#untold.shift(); next; next = this.#untold.shift())
        events.emit('supervisor', { ...next, server });
      this.#untold = undefined;
    } finally {
      this.#isTelling = false;
    }
  }

  #entered({ kind: from }: ServerState, after: ServerState, nowMs: number, restarts: number): void {
    const { run, kind } = after;
    this.note({ kind: 'state', run, from, to: kind }, nowMs);
    switch (kind) {
      case 'backing_off': {
        const { reason, retryAtMs } = after;
        this.note({ kind: 'restart', run, restarts, reason, delayMs: Math.max(0, retryAtMs - nowMs) }, nowMs);
        break;
      }
      case 'parked': {
        const { reason, nextProbeAtMs } = after;
        this.#outSinceMs ??= nowMs;
        this.note({ kind, run, reason, nextProbeAtMs, repeats: this.#parkedAgain(reason) }, nowMs);
        break;
      }
      case 'ejected':
      case 'auth_required':
        this.#outSinceMs ??= nowMs;
        this.note({ kind, run, reason: after.reason }, nowMs);
        break;
      case 'ready':
        if (this.#outSinceMs !== undefined)
          this.note({ kind: 'revived', run, afterMs: nowMs - this.#outSinceMs }, nowMs);
        this.#outSinceMs = undefined;
        break;
      default:
    }
  }

  #parkedAgain(reason: Reason): number {
    const isSame = reason.code === this.#parkedFor?.code && reason.message === this.#parkedFor.message;
    this.#repeats = isSame ? this.#repeats + 1 : 0;
    // The same object as in the state: nothing is kept twice.
    this.#parkedFor = reason;
    return this.#repeats;
  }
}

const isProven = (state: ServerState): boolean =>
  (state.kind === 'ready' || state.kind === 'suspect') && state.isProven;
