/**
 * Keeps what is known of one connection's tools: reads them when it opens, and again when the server says they changed.
 * A server without its tools known is not ready: its read-only tools could not be told from the others.
 * Not here: what follows from them (managed-server.ts).
 *
 * Invariant: at most one reading at a time, and one more when something changed meanwhile; a reading that fails leaves what
 * was known before.
 */
import { type Clock, sleep } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import type { ServerList } from '../session/lists.js';
import type { CallOptions, Session } from '../session/session.js';

/** Servers announce each of many changes; they are read once when things have settled. */
const settleMs = 100;
const readMsMax = 30_000;

/** Told that a reading begins; what it returns is handed the list. */
export type BeginReading = () => (list: ServerList) => void;

export class ToolLearner {
  readonly #clock: Clock;
  readonly #begin: BeginReading;
  readonly #onProblem: (error: unknown) => void;
  #session: Session | undefined;
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
      const learn = this.#begin();
      learn(await session.list('tools/list', limits));
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
      await sleep(this.#clock, settleMs);
      this.#state = 'reading';
      if (session.closedBy) return;
      const learn = this.#begin();
      learn(await session.list('tools/list', { deadlineAtMs: this.#clock.nowMs() + readMsMax }));
    } catch (error) {
      this.#onProblem(error);
    } finally {
      const isStale = (this.#state as string) === 'reading, changed again';
      this.#state = 'idle';
      if (isStale && !session.closedBy) this.changed();
    }
  }
}
