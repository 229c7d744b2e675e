/**
 * Reads one list of one connection, and reads it again when the server announces a change.
 * Not here: the use of a list (host/list-operations.ts, listings.ts), the choice of lists (server-runs.ts).
 *
 * Invariants: one read runs at a time; changes during a read cause one more. A failed read keeps the known list.
 */
import { type Clock, sleep } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import type { CallOptions, Session } from '../session/session.js';

/** A server may announce many changes one by one: a single read after this delay covers them. */
const settleMs = 100;
export const readMsMax = 30_000;
/** Pause after a read, as a multiple of its duration: a server that announces changes all the time cannot keep Hostler busy. */
const pauseFactor = 10;
const pauseMsMax = 60_000;

/** Called when a read begins. The returned function receives the list. */
type BeginRead = () => (list: ServerList) => Promise<void> | void;

export class ListReader {
  readonly #method: ListMethod;
  readonly #clock: Clock;
  readonly #begin: BeginRead;
  readonly #onProblem: (error: unknown) => void;
  #pauseUntilMs = 0;
  #state: 'idle' | 'reading' | 'changed again' = 'idle';

  constructor(method: ListMethod, clock: Clock, begin: BeginRead, onProblem: (error: unknown) => void) {
    this.#method = method;
    this.#clock = clock;
    this.#begin = begin;
    this.#onProblem = onProblem;
  }

  changed(session: Session): void {
    if (this.#state !== 'idle') this.#state = 'changed again';
    else void this.#read(session);
  }

  /** Reads now; rejects when the list cannot be read. */
  async readOnce(session: Session, limits: CallOptions): Promise<void> {
    const startedMs = this.#clock.nowMs();
    try {
      const learn = this.#begin();
      await learn(await session.list(this.#method, limits));
    } finally {
      const nowMs = this.#clock.nowMs();
      this.#pauseUntilMs = nowMs + Math.min(pauseFactor * (nowMs - startedMs), pauseMsMax);
    }
  }

  async #read(session: Session): Promise<void> {
    this.#state = 'reading';
    try {
      await sleep(this.#clock, Math.max(settleMs, this.#pauseUntilMs - this.#clock.nowMs()));
      this.#state = 'reading';
      if (session.closedBy) return;
      await this.readOnce(session, { deadlineAtMs: this.#clock.nowMs() + readMsMax });
    } catch (error) {
      this.#onProblem(error);
    } finally {
      const isStale = (this.#state as string) === 'changed again';
      this.#state = 'idle';
      if (isStale && !session.closedBy) this.changed(session);
    }
  }
}

/**
 * Reads the tools of a new connection. The server becomes ready only after this read, which tells which tools are read-only.
 * Resolves when the tools are known or the server cannot list them. If the connection is lost, closes it and rejects.
 */
export async function readFirstTools(
  reader: ListReader,
  session: Session,
  limits: CallOptions,
  onProblem: (error: unknown) => void,
): Promise<void> {
  try {
    await reader.readOnce(session, limits);
  } catch (error) {
    // A server that answers with an error can still be called.
    if (!isHostError(error) || session.closedBy || error.code !== 'protocol_error') {
      await session.close();
      throw error;
    }
    onProblem(error);
  }
}
