/**
 * The event stream of a host: time-stamped events of supervisors and policy, in one order for all listeners.
 * Not here: the event types (supervisor/supervisor-events.ts, policy/policy-events.ts, audit.ts).
 *
 * Invariants: an event that a listener causes is emitted after the current one, to all listeners. A listener that throws does
 * not affect other listeners. Events without a listener are not queued.
 */
import type { Clock } from '../kernel/clock.js';
import { Emitter, type Listener } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { type PolicyEvent, policyEventKinds } from '../policy/policy-events.js';
import { type SupervisorEvent, type SupervisorEvents, supervisorEventKinds } from '../supervisor/supervisor-events.js';

/** `atMs` is on the host's clock, which is not the wall clock. */
export type HostEvent = SupervisorEvent | ({ readonly atMs: number; readonly server: string } & PolicyEvent);
export type HostEventKind = HostEvent['kind'];
export type HostEventOf<Kind extends HostEventKind | 'any'> = Kind extends 'any'
  ? HostEvent
  : Extract<HostEvent, { readonly kind: Kind }>;

export const hostEventKinds: readonly HostEventKind[] = [...supervisorEventKinds, ...policyEventKinds];

/** Bound of events that are queued while a listener runs. */
const queuedMax = 10_000;

type ByKind = { readonly [Kind in HostEventKind | 'any']: HostEventOf<Kind> };

export class HostEvents {
  readonly supervisors = new Emitter<SupervisorEvents>();
  readonly #clock: Clock;
  readonly #listeners: Emitter<ByKind>;
  /** At most `queuedMax`; empty again when the outermost `emit` returns. */
  readonly #queue: HostEvent[] = [];
  readonly #onProblem: (error: unknown) => void;
  #isEmitting = false;
  #hasDropped = false;
  #hasCallListeners = false;

  /** `settle` is the host's own reaction to an event; it runs before all listeners. */
  constructor(clock: Clock, settle: (event: SupervisorEvent) => void, onProblem: (error: unknown) => void) {
    this.#clock = clock;
    this.#onProblem = onProblem;
    this.#listeners = new Emitter<ByKind>((error) => onProblem(error));
    this.supervisors.on('supervisor', (event) => {
      const wasEmitting = this.#isEmitting;
      this.#isEmitting = true;
      if (this.hasListeners(event.kind)) this.#add(event);
      try {
        settle(event);
      } finally {
        this.#isEmitting = wasEmitting;
        this.#drain();
      }
    });
  }

  /** Returns the function that removes the listener. */
  on<Kind extends HostEventKind | 'any'>(kind: Kind, listener: Listener<HostEventOf<Kind>>): () => void {
    // A new function each time, because one listener may be added twice and removed once.
    const own = (event: HostEventOf<Kind>) => listener(event);
    const off = this.#listeners.on(kind, own as Listener<ByKind[Kind]>);
    this.#hasCallListeners = this.hasListeners('call');
    return () => {
      off();
      this.#hasCallListeners = this.hasListeners('call');
    };
  }

  /** Read for every call, so the count of listeners is cached as a boolean. */
  get hasCallListeners(): boolean {
    return this.#hasCallListeners;
  }

  hasListeners(kind: HostEventKind): boolean {
    return this.#listeners.listenerCount('any') > 0 || this.#listeners.listenerCount(kind) > 0;
  }

  emit(server: string, event: PolicyEvent): void {
    if (!this.hasListeners(event.kind)) return;
    const stamp = { atMs: this.#clock.nowMs(), server };
    // The record of a call is extended in place, because no other code uses it. A copy would cost more, and would compute the
    // hash.
    this.#add(event.kind === 'call' ? Object.assign(event, stamp) : { ...event, ...stamp });
    this.#drain();
  }

  /** If the queue is full, the newest event is dropped. Each overflow is reported once. */
  #add(event: HostEvent): void {
    if (this.#queue.length < queuedMax) this.#queue.push(event);
    else if (!this.#hasDropped) {
      this.#hasDropped = true;
      this.#onProblem(tooManyQueued());
    }
  }

  #drain(): void {
    if (this.#isEmitting) return;
    this.#isEmitting = true;
    try {
      for (let next = this.#queue.shift(); next; next = this.#queue.shift()) {
        this.#listeners.emit(next.kind, next as never);
        this.#listeners.emit('any', next);
      }
      this.#hasDropped = false;
    } finally {
      this.#isEmitting = false;
    }
  }
}

const tooManyQueued = (): HostError =>
  new HostError('overloaded', `${queuedMax} events are queued: newer ones are dropped`, {
    reason: 'events',
    limit: queuedMax,
    hint: 'an event listener causes further events, for example by calling the host; let it do so in a later tick',
  });
