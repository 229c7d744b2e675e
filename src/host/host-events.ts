/**
 * The one stream of a host: what supervisors and policy tell, joined, stamped, and in one order for everybody.
 * Log, metrics and dashboard read this and nothing else.
 * Not here: what there is to tell (supervisor/supervisor-events.ts, policy/call-events.ts, audit.ts).
 *
 * Invariants: an event that a listener causes is told after the one it heard, to everybody; a listener that throws disturbs
 * nobody; what nobody listens for is not queued, and whether calls are heard at all is one look at a boolean.
 */
import type { Clock } from '../kernel/clock.js';
import { Emitter, type Listener } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { type PolicyEvent, policyEventKinds } from '../policy/call-events.js';
import { type SupervisorEvent, type SupervisorEvents, supervisorEventKinds } from '../supervisor/supervisor-events.js';

/** `atMs` is on the host's clock: it tells how long, not when by the wall. */
export type HostEvent = SupervisorEvent | ({ readonly atMs: number; readonly server: string } & PolicyEvent);
export type HostEventKind = HostEvent['kind'];
export type HostEventOf<Kind extends HostEventKind | 'any'> = Kind extends 'any'
  ? HostEvent
  : Extract<HostEvent, { readonly kind: Kind }>;

export const hostEventKinds: readonly HostEventKind[] = [...supervisorEventKinds, ...policyEventKinds];

/** Events that wait while a listener hears one. */
const untoldMax = 10_000;

type ByKind = { readonly [Kind in HostEventKind | 'any']: HostEventOf<Kind> };

export class HostEvents {
  /** Where supervisors speak. */
  readonly supervisors = new Emitter<SupervisorEvents>();
  readonly #clock: Clock;
  readonly #listeners: Emitter<ByKind>;
  /** At most `untoldMax`; empty again before control goes back to whoever told the first of them. */
  readonly #untold: HostEvent[] = [];
  readonly #onProblem: (error: unknown) => void;
  #isTelling = false;
  #hasLost = false;
  #hearsCalls = false;

  /** `settle` does what the host itself has to do about an event, before anybody hears of it. */
  constructor(clock: Clock, settle: (event: SupervisorEvent) => void, onProblem: (error: unknown) => void) {
    this.#clock = clock;
    this.#onProblem = onProblem;
    this.#listeners = new Emitter<ByKind>((error) => onProblem(error));
    this.supervisors.on('supervisor', (event) => {
      const wasTelling = this.#isTelling;
      this.#isTelling = true;
      if (this.hears(event.kind)) this.#queue(event);
      try {
        settle(event);
      } finally {
        this.#isTelling = wasTelling;
        this.#drain();
      }
    });
  }

  /** Returns the function that takes the listener off again. */
  on<Kind extends HostEventKind | 'any'>(kind: Kind, listener: Listener<HostEventOf<Kind>>): () => void {
    // A function of its own: the same listener may be put on twice, and each time be taken off alone.
    const own = (event: HostEventOf<Kind>) => listener(event);
    const off = this.#listeners.on(kind, own as Listener<ByKind[Kind]>);
    this.#hearsCalls = this.hears('call');
    return () => {
      off();
      this.#hearsCalls = this.hears('call');
    };
  }

  /** For the path of every call: whether records of calls are wanted. */
  get hearsCalls(): boolean {
    return this.#hearsCalls;
  }

  hears(kind: HostEventKind): boolean {
    return this.#listeners.listenerCount('any') > 0 || this.#listeners.listenerCount(kind) > 0;
  }

  tell(server: string, event: PolicyEvent): void {
    if (!this.hears(event.kind)) return;
    const stamp = { atMs: this.#clock.nowMs(), server };
    // The record of a call is made for this alone: copying it would cost more than making it, and read its hash.
    this.#queue(event.kind === 'call' ? Object.assign(event, stamp) : { ...event, ...stamp });
    this.#drain();
  }

  /** The newest is lost when too many wait: listeners cause more events than they hear. Reported once for each time. */
  #queue(event: HostEvent): void {
    if (this.#untold.length < untoldMax) this.#untold.push(event);
    else if (!this.#hasLost) {
      this.#hasLost = true;
      this.#onProblem(tooManyUntold());
    }
  }

  #drain(): void {
    if (this.#isTelling) return;
    this.#isTelling = true;
    try {
      for (let next = this.#untold.shift(); next; next = this.#untold.shift()) {
        this.#listeners.emit(next.kind, next as never);
        this.#listeners.emit('any', next);
      }
      this.#hasLost = false;
    } finally {
      this.#isTelling = false;
    }
  }
}

const tooManyUntold = (): HostError =>
  new HostError('overloaded', `${untoldMax} events wait to be told: newer ones are lost`, {
    reason: 'events',
    limit: untoldMax,
    hint: 'a listener causes events while it hears one, such as by calling the host: do it later',
  });
