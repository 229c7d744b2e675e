/**
 * Reads one list of one connection, and reads it again when the server says that it changed.
 * Not here: what follows from a list (catalogue.ts, listings.ts), which lists are worth reading (server-run.ts).
 *
 * Invariants: at most one reading at a time, and one more when something changed meanwhile; a reading that fails leaves what
 * was known before; however often a server announces changes, readings take at most a tenth of the time.
 */
import { type Clock, sleep } from '../kernel/clock.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import type { CallOptions, Session } from '../session/session.js';

/** Servers announce each of many changes; they are read once when things have settled. */
const settleMs = 100;
export const readMsMax = 30_000;
/** So many times as long as a reading took, there is no other. */
const restFactor = 10;
const restMsMax = 60_000;

/** Told that a reading begins; what it returns is handed the list, and may take a while over it. */
export type BeginReading = () => (list: ServerList) => Promise<void> | void;

export class ListReader {
  readonly #method: ListMethod;
  readonly #clock: Clock;
  readonly #begin: BeginReading;
  readonly #onProblem: (error: unknown) => void;
  #restUntilMs = 0;
  #state: 'idle' | 'reading' | 'reading, changed again' = 'idle';

  constructor(method: ListMethod, clock: Clock, begin: BeginReading, onProblem: (error: unknown) => void) {
    this.#method = method;
    this.#clock = clock;
    this.#begin = begin;
    this.#onProblem = onProblem;
  }

  changed(session: Session): void {
    if (this.#state !== 'idle') this.#state = 'reading, changed again';
    else void this.#read(session);
  }

  /** Now, and once; rejects when it cannot be had. */
  async readOnce(session: Session, limits: CallOptions): Promise<void> {
    const startedMs = this.#clock.nowMs();
    try {
      const learn = this.#begin();
      await learn(await session.list(this.#method, limits));
    } finally {
      const nowMs = this.#clock.nowMs();
      this.#restUntilMs = nowMs + Math.min(restFactor * (nowMs - startedMs), restMsMax);
    }
  }

  async #read(session: Session): Promise<void> {
    this.#state = 'reading';
    try {
      await sleep(this.#clock, Math.max(settleMs, this.#restUntilMs - this.#clock.nowMs()));
      this.#state = 'reading';
      if (session.closedBy) return;
      await this.readOnce(session, { deadlineAtMs: this.#clock.nowMs() + readMsMax });
    } catch (error) {
      this.#onProblem(error);
    } finally {
      const isStale = (this.#state as string) === 'reading, changed again';
      this.#state = 'idle';
      if (isStale && !session.closedBy) this.changed(session);
    }
  }
}
