/**
 * Keeps what is known of one connection's tools: reads them when it opens, and again when the server says they changed.
 * A server without its tools known is not ready: its read-only tools could not be told from the others.
 * Not here: what follows from them (managed-server.ts).
 *
 * Invariants: at most one reading at a time, and one more when something changed meanwhile; a reading that fails leaves what
 * was known before; however often a server announces changes, readings take at most a tenth of the time.
 */
import { type Clock, sleep } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import type { ServerList } from '../session/lists.js';
import type { CallOptions, Session } from '../session/session.js';

/** Servers announce each of many changes; they are read once when things have settled. */
const settleMs = 100;
const readMsMax = 30_000;
/** So many times as long as a reading took, there is no other. */
const restFactor = 10;
const restMsMax = 60_000;

/** Told that a reading begins; what it returns is handed the list, and may take a while over it. */
export type BeginReading = () => (list: ServerList) => Promise<void> | void;

export class ToolLearner {
  readonly #clock: Clock;
  readonly #begin: BeginReading;
  readonly #onProblem: (error: unknown) => void;
  #session: Session | undefined;
  #restUntilMs = 0;
  #state: 'idle' | 'reading' | 'reading, changed again' = 'idle';

  constructor(clock: Clock, begin: BeginReading, onProblem: (error: unknown) => void) {
    this.#clock = clock;
    this.#begin = begin;
    this.#onProblem = onProblem;
  }

  /** Resolves when the tools are known, or the server has said that it cannot tell; rejects when the connection is lost. */
  async begin(session: Session, limits: CallOptions): Promise<void> {
    this.#session = session;
    try {
      await this.#readOnce(session, limits);
    } catch (error) {
      // A server that answers, if only with an error, can still be called.
      if (!isHostError(error) || session.closedBy || error.code !== 'protocol_error') {
        await session.close();
        throw error;
      }
      this.#onProblem(error);
    }
  }

  changed(): void {
    if (this.#state !== 'idle') this.#state = 'reading, changed again';
    else if (this.#session) void this.#read(this.#session);
  }

  async #read(session: Session): Promise<void> {
    this.#state = 'reading';
    try {
      await sleep(this.#clock, Math.max(settleMs, this.#restUntilMs - this.#clock.nowMs()));
      this.#state = 'reading';
      if (session.closedBy) return;
      await this.#readOnce(session, { deadlineAtMs: this.#clock.nowMs() + readMsMax });
    } catch (error) {
      this.#onProblem(error);
    } finally {
      const isStale = (this.#state as string) === 'reading, changed again';
      this.#state = 'idle';
      if (isStale && !session.closedBy) this.changed();
    }
  }

  async #readOnce(session: Session, limits: CallOptions): Promise<void> {
    const startedMs = this.#clock.nowMs();
    try {
      const learn = this.#begin();
      await learn(await session.list('tools/list', limits));
    } finally {
      const nowMs = this.#clock.nowMs();
      this.#restUntilMs = nowMs + Math.min(restFactor * (nowMs - startedMs), restMsMax);
    }
  }
}
