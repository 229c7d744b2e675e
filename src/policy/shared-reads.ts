/**
 * Makes one request of equal reads at the same time. The shared read belongs to nobody: a caller that leaves, leaves alone,
 * and the last one cancels it. Errors are shared too.
 * Not here: what makes two reads equal (whoever makes the key), keeping the answer (list-cache.ts), and copies: what a
 * read resolves to is handed to each caller as it is.
 *
 * Invariants: joining and starting are decided in one tick; a caller waits no longer than its own deadline; nobody is given
 * the answer to a question that was sent before the version it asked in.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import type { HostError } from '../kernel/errors.js';

/**
 * The shared read runs to the deadline of its first caller. Whoever has this much more time than that makes a read of its
 * own; with less it may be told of a timeout so much too early.
 */
const deadlineSlackMs = 1_000;

/** Past these a read goes alone. */
const flightsMax = 10_000;
const callersPerFlightMax = 10_000;

export interface Reader {
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
  /** Of what is read, now. An answer is good for whoever asks in the version in which its question was sent. */
  readonly version: () => number;
  /** What it is told when it leaves before the end. */
  readonly left: (code: 'timeout' | 'cancelled') => HostError;
}

export interface ReadLimits {
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal;
  /** To be called in the tick in which the question is sent; returns the version. */
  readonly sending: () => number;
}

export type Read<T> = (limits: ReadLimits) => Promise<T>;

interface Caller<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
  stopWatching(): void;
}

interface Flight<T> {
  readonly key: string;
  readonly deadlineAtMs: number;
  readonly callers: Set<Caller<T>>;
  /** In which the question was sent; undefined before that. */
  sentIn: number | undefined;
  readonly abort: AbortController;
}

export class SharedReads<T> {
  readonly #clock: Clock;
  readonly #flights = new Map<string, Flight<T>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Reads under way that can be joined. */
  get flying(): number {
    return this.#flights.size;
  }

  join(key: string, reader: Reader, read: Read<T>): Promise<T> {
    if (reader.signal?.aborted) return Promise.reject(reader.left('cancelled'));
    const flying = this.#flights.get(key);
    if (flying && mayBoard(flying, reader)) return this.#board(flying, reader);
    const flight: Flight<T> = {
      key,
      deadlineAtMs: reader.deadlineAtMs,
      callers: new Set(),
      sentIn: undefined,
      abort: new AbortController(),
    };
    if (flying || this.#flights.size < flightsMax) this.#flights.set(key, flight);
    const outcome = this.#board(flight, reader);
    void this.#fly(flight, read, reader.version);
    return outcome;
  }

  async #fly(flight: Flight<T>, read: Read<T>, version: () => number): Promise<void> {
    const sending = () => {
      flight.sentIn = version();
      return flight.sentIn;
    };
    try {
      const value = await read({ deadlineAtMs: flight.deadlineAtMs, signal: flight.abort.signal, sending });
      for (const caller of this.#end(flight)) caller.resolve(value);
    } catch (error) {
      for (const caller of this.#end(flight)) caller.reject(error);
    }
  }

  #board(flight: Flight<T>, { deadlineAtMs, signal, left }: Reader): Promise<T> {
    return new Promise((resolve, reject) => {
      const leave = (code: 'timeout' | 'cancelled') => {
        caller.stopWatching();
        flight.callers.delete(caller);
        if (flight.callers.size === 0) this.#abandon(flight);
        reject(left(code));
      };
      const onAbort = () => leave('cancelled');
      // Who has as much time as the shared read hears of the timeout from it, with all it knows.
      const isShorter = deadlineAtMs < flight.deadlineAtMs;
      const cancelTimer = isShorter ? this.#clock.at(deadlineAtMs, () => leave('timeout')) : undefined;
      signal?.addEventListener('abort', onAbort, { once: true });
      const stopWatching = () => {
        cancelTimer?.();
        signal?.removeEventListener('abort', onAbort);
      };
      const caller: Caller<T> = { resolve, reject, stopWatching };
      flight.callers.add(caller);
    });
  }

  /** Nobody waits any more, and nobody may join what is being cancelled. */
  #abandon(flight: Flight<T>): void {
    this.#forget(flight);
    flight.abort.abort();
  }

  /** From here on the callers are answered; who asks now asks anew. */
  #end(flight: Flight<T>): Caller<T>[] {
    this.#forget(flight);
    const callers = [...flight.callers];
    flight.callers.clear();
    for (const caller of callers) caller.stopWatching();
    return callers;
  }

  #forget(flight: Flight<T>): void {
    if (this.#flights.get(flight.key) === flight) this.#flights.delete(flight.key);
  }
}

function mayBoard<T>({ deadlineAtMs, callers, sentIn }: Flight<T>, reader: Reader): boolean {
  if (sentIn !== undefined && sentIn !== reader.version()) return false;
  return reader.deadlineAtMs <= deadlineAtMs + deadlineSlackMs && callers.size < callersPerFlightMax;
}
