/**
 * Reads one list of one session, and reads it again when it may have changed. A read that failed is repeated.
 * Not here: the use of a list (host/list-operations.ts, listings.ts), the choice of lists (server-run.ts).
 *
 * Invariants: one read runs at a time; changes during a read cause one more. A failed read keeps the known list. Only the first
 * of several failures in a row is reported. While reads fail, announced changes cause at most one read per second.
 */
import { type Deferred, deferred } from '../kernel/deferred.js';
import { isHostError } from '../kernel/errors.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import type { CallOptions, Session } from '../session/session.js';
import { isTemporary, SessionRetry, type SessionWork } from './session-retry.js';

/** A server may announce many changes one by one: a single read after this delay covers them. */
const settleMs = 100;
const failedSettleMs = 1_000;
const readAgainMsMax = 5_000;
const readMsMax = 30_000;
/** Pause after a read, as a multiple of its duration: a server that announces changes all the time cannot keep Hostler busy. */
const pauseFactor = 10;
const pauseMsMax = 60_000;

export interface ListReaderParts extends SessionWork {
  readonly session: Session;
  readonly method: ListMethod;
  /** Called when a read begins. The returned function receives the list. */
  readonly begin: () => (list: ServerList) => Promise<void> | void;
  readonly onProblem: (error: unknown) => void;
}

export class ListReader {
  readonly #parts: ListReaderParts;
  readonly #retry: SessionRetry;
  #pauseUntilMs = 0;
  /** Settles with the read that is running. */
  #running: Promise<void> | undefined;
  #isStale = false;
  /** Settles with the next read that begins. */
  #awaited: Deferred | undefined;

  constructor(parts: ListReaderParts) {
    this.#parts = parts;
    this.#retry = new SessionRetry(parts);
  }

  changed(): void {
    this.#isStale = true;
    const delayMs = this.#retry.hasFailed ? failedSettleMs : settleMs;
    if (!this.#running) this.#retry.after(Math.max(delayMs, this.#pauseLeftMs), () => void this.read());
  }

  /** Reads now. After a temporary failure it reads again later. Never rejects. */
  async read(): Promise<void> {
    const { clock, session, onProblem } = this.#parts;
    if (this.#running || this.#retry.isThrottled) return this.changed();
    let isAgain = false;
    try {
      await this.#retry.send(() => this.#readOnce({ deadlineAtMs: clock.nowMs() + readMsMax }));
      this.#retry.succeeded();
    } catch (error) {
      // The supervisor reports the end of the session.
      if (session.closedBy) return;
      if (!this.#retry.hasFailed) onProblem(error);
      isAgain = isTemporary(error);
    }
    this.#ended(isAgain);
  }

  /**
   * Reads now, or after the read that is running (it may have begun before the change) and any throttle. Resolves when the read
   * has ended, at the latest 5 s after the throttle. Never rejects.
   */
  readAgain(): Promise<void> {
    const awaited = this.#awaited ?? this.#awaitedInTime();
    this.#awaited = awaited;
    void this.read();
    return awaited.promise;
  }

  /**
   * Reads the tools of a new connection. The server becomes ready only after this read, which tells which tools are read-only.
   * Resolves when the tools are known or the server cannot list them. If the connection is lost, closes it and rejects.
   */
  async readFirst(limits: CallOptions): Promise<void> {
    const { session, onProblem } = this.#parts;
    try {
      await this.#readOnce(limits);
    } catch (error) {
      // A server that answers with an error can still be called.
      if (!isHostError(error) || session.closedBy || error.code !== 'protocol_error') {
        await session.close();
        throw error;
      }
      onProblem(error);
      return this.#ended(isTemporary(error));
    }
    this.#ended(false);
  }

  stop(): void {
    this.#retry.stop();
    this.#awaited?.resolve();
  }

  /** A read has ended. Plans the next one, if any. */
  #ended(isAgain: boolean): void {
    if (this.#awaited && !this.#retry.isThrottled) void this.read();
    else if (isAgain) this.#retry.retry(() => void this.read(), this.#pauseLeftMs);
    else if (this.#isStale) this.changed();
  }

  #awaitedInTime(): Deferred {
    const { clock, throttle, session } = this.#parts;
    const awaited = deferred();
    const atMs = clock.nowMs() + (throttle.leftMs(session.server) ?? 0) + readAgainMsMax;
    void awaited.promise.then(clock.at(atMs, awaited.resolve));
    return awaited;
  }

  async #readOnce(limits: CallOptions): Promise<void> {
    const { clock, session, method, begin } = this.#parts;
    const startedMs = clock.nowMs();
    const running = deferred();
    this.#running = running.promise;
    this.#isStale = false;
    const awaited = this.#awaited;
    this.#awaited = undefined;
    try {
      const learn = begin();
      await learn(await session.list(method, limits));
    } finally {
      this.#running = undefined;
      running.resolve();
      awaited?.resolve();
      const nowMs = clock.nowMs();
      this.#pauseUntilMs = nowMs + Math.min(pauseFactor * (nowMs - startedMs), pauseMsMax);
    }
  }

  get #pauseLeftMs(): number {
    return this.#pauseUntilMs - this.#parts.clock.nowMs();
  }
}
