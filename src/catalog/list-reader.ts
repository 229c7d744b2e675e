/**
 * Reads one list of one session, and reads it again when it may have changed. A read that failed is repeated.
 * Not here: the use of a list (host/list-operations.ts, listings.ts), the choice of lists (server-run.ts).
 *
 * Invariants: one read runs at a time; changes during a read cause one more. A failed read keeps the known list. Only the first
 * of several failures in a row is reported. While reads fail, announced changes cause at most one read per second. After
 * `readAgain`, calls are held until the list was read, but for at most 5 s after the end of a throttle. If the session ends,
 * held calls are refused, because the list was not read.
 */
import { Cancellation } from '../kernel/cancel-signal.js';
import type { Cancel } from '../kernel/clock.js';
import { type Deferred, deferred } from '../kernel/deferred.js';
import { isHostError } from '../kernel/errors.js';
import type { ListMethod, ServerList } from '../session/lists.js';
import type { CallOptions, Session } from '../session/session.js';
import { notOpen } from '../wire/wire-errors.js';
import { isTemporary, SessionRetry, type SessionWork } from './session-retry.js';

/** A server may announce many changes one by one: a single read after this delay covers them. */
const settleMs = 100;
const failedSettleMs = 1_000;
/** Longest time for which calls are held if the list is not answered. */
const holdMsMax = 5_000;
/** After this number of throttled reads in a row, calls are no longer held. */
const throttledReadsMax = 3;
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

/** Holds calls back until the list of a new session was read. */
interface Hold extends Deferred {
  readonly cancelTimer: Cancel;
  readonly throttledReads: number;
}

export class ListReader {
  readonly #parts: ListReaderParts;
  readonly #retry: SessionRetry;
  #pauseUntilMs = 0;
  /** Set while a read runs. */
  #running: Cancellation | undefined;
  #isStale = false;
  #hold: Hold | undefined;
  /** True: the read that the hold waits for has not begun. */
  #isHoldDue = false;

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
    if (this.#running) return this.changed();
    if (this.#retry.isThrottled) return this.#hold ? this.#readAfterThrottle() : this.changed();
    let isAgain = false;
    try {
      const signal = new Cancellation();
      await this.#retry.send(() => this.#readOnce({ deadlineAtMs: clock.nowMs() + readMsMax, signal }, signal));
      this.#retry.succeeded();
    } catch (error) {
      // The supervisor reports the end of the session.
      if (session.closedBy || this.#retry.isStopped) return this.#endHold();
      // If the next read is due already, the failed one belongs to the old session and is not reported.
      if (!this.#retry.hasFailed && !this.#isHoldDue && !this.#hold?.throttledReads) onProblem(error);
      isAgain = isTemporary(error);
    }
    this.#ended(isAgain);
  }

  /**
   * Reads the list of a new session now, or after any throttle. A running read belongs to the old session and is given up. The
   * returned function gives a promise that calls wait for; undefined: the list was read, could not be read, or took 5 s. The
   * promise also resolves when a throttle begins: the calls are then refused, and the list is read later. The promise rejects
   * when the session ends.
   */
  readAgain(): () => Promise<void> | undefined {
    this.#holdCalls(0);
    this.#running?.abort();
    void this.read();
    return () => this.#hold?.promise;
  }

  /**
   * Reads the tools of a new connection. The server becomes ready only after this read, which tells which tools are read-only.
   * Resolves when the tools are known or the server cannot list them. If the connection is lost, closes the session and
   * rejects.
   */
  async readFirst(limits: CallOptions): Promise<void> {
    const { session, throttle, onProblem } = this.#parts;
    try {
      await this.#readOnce(limits);
    } catch (cause) {
      // May begin a throttle, which also applies to the open instances of other clients.
      const error = throttle.failed(session.server, cause);
      // A server that answers with an error can still be called.
      if (!isHostError(error) || session.closedBy || error.code !== 'protocol_error') {
        this.stop();
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
    // A stop waits for open requests. It must not wait for a list that is no longer used.
    this.#running?.abort();
    this.#hold?.reject(notOpen(this.#parts.session.server));
    this.#endHold();
  }

  /** A read has ended. Plans the next one, if any. */
  #ended(isAgain: boolean): void {
    if (!this.#isHoldDue) {
      if (isAgain) this.#endHoldOrThrottle();
      else this.#endHold();
    }
    if (this.#hold) void this.read();
    else if (isAgain) this.#retry.retry(() => void this.read(), this.#pauseLeftMs);
    else if (this.#isStale) this.changed();
  }

  #readAfterThrottle(): void {
    this.#retry.after(0, () => void this.read());
  }

  /** Starts a new hold. Calls of the previous hold continue: they wait for this one, or are refused. */
  #holdCalls(throttledReads: number): void {
    const { clock, throttle, session } = this.#parts;
    this.#endHold();
    const atMs = clock.nowMs() + (throttle.leftMs(session.server) ?? 0) + holdMsMax;
    const cancelTimer = clock.at(atMs, () => this.#endHoldOrThrottle());
    this.#hold = { ...deferred(), cancelTimer, throttledReads };
    // Without a waiting call, the rejection must not count as unhandled.
    this.#hold.promise.catch(() => {});
    this.#isHoldDue = true;
  }

  /**
   * Ends the hold. During a throttle it begins a new hold instead, because the list must be read before the next call is sent.
   */
  #endHoldOrThrottle(): void {
    const throttledReads = (this.#hold?.throttledReads ?? throttledReadsMax) + 1;
    if (this.#retry.isThrottled && throttledReads < throttledReadsMax) this.#holdCalls(throttledReads);
    else this.#endHold();
  }

  #endHold(): void {
    this.#hold?.cancelTimer();
    this.#hold?.resolve();
    this.#hold = undefined;
    this.#isHoldDue = false;
  }

  async #readOnce(limits: CallOptions, running = new Cancellation()): Promise<void> {
    const { clock, session, method, begin } = this.#parts;
    const startedMs = clock.nowMs();
    this.#running = running;
    this.#isStale = false;
    this.#isHoldDue = false;
    let isUnanswered = false;
    try {
      const learn = begin();
      await learn(await session.list(method, limits));
    } catch (error) {
      isUnanswered = isHostError(error) && (error.code === 'timeout' || error.code === 'cancelled');
      throw error;
    } finally {
      this.#running = undefined;
      // If no answer came, Hostler had no list to process, so no pause follows.
      const tookMs = isUnanswered ? 0 : clock.nowMs() - startedMs;
      this.#pauseUntilMs = clock.nowMs() + Math.min(pauseFactor * tookMs, pauseMsMax);
    }
  }

  get #pauseLeftMs(): number {
    return this.#pauseUntilMs - this.#parts.clock.nowMs();
  }
}
