/**
 * One run of a server: waits at the start gate, connects, and is lost or closed. An orderly close first drains open requests.
 * Not here: the decision to open and close (server-state.ts).
 *
 * Invariants: every opened connection is closed, also one that opens after `close` or is dead at once. `failed` and `closed`
 * are reported only when nothing is left open. After `close` only `closed` is reported, once.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import type { Connect, Connection, Verify } from './ports.js';
import { unexpectedError } from './refusals.js';
import type { Gate } from './start-gate.js';

/** Time for open requests to finish when their server is stopped. */
export const drainMsMax = 5_000;

interface RunListener<C> {
  opened(connection: C): void;
  failed(error: HostError): void;
  lost(error: HostError): void;
  closed(): void;
  /** Closing failed; the connection still counts as closed. */
  closeFailed(error: unknown): void;
}

export class Run<C extends Connection> {
  readonly #server: string;
  readonly #listener: RunListener<C>;
  readonly #abort = new AbortController();
  #withdraw: () => boolean = () => false;
  #connection: C | undefined;
  /** Set when the connection was lost before `connect` resolved. */
  #lostBy: HostError | undefined;
  #isClosing = false;

  constructor(server: string, listener: RunListener<C>) {
    this.#server = server;
    this.#listener = listener;
  }

  open(run: number, gate: Gate, connect: Connect<C>, isRestart = false): void {
    this.#withdraw = gate.enter({
      isRestart,
      isStillNeeded: () => !this.#isClosing,
      begin: (done) => void this.#connect(run, connect).finally(done),
    });
  }

  /** `isOrderly`: the server is healthy, so its open requests are drained first. */
  close(isOrderly: boolean): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    if (this.#withdraw()) this.#listener.closed();
    else if (this.#connection) void this.#shut(this.#connection, isOrderly).then(() => this.#listener.closed());
    // Otherwise `connect` is still running; `#ended` reports `closed` when it settles.
    else this.#abort.abort();
  }

  /** Resolves when the attempt is over; never rejects. */
  async #connect(run: number, connect: Connect<C>): Promise<void> {
    let connection: C;
    try {
      connection = await connect(run, this.#abort.signal, (error) => this.#onLost(error));
    } catch (error) {
      this.#ended(error);
      return;
    }
    const deadBy = this.#lostBy ?? connection.closedBy;
    if (deadBy || this.#isClosing) {
      await this.#shut(connection, false);
      this.#ended(deadBy);
      return;
    }
    this.#connection = connection;
    this.#listener.opened(connection);
  }

  #ended(error: unknown): void {
    if (this.#isClosing) this.#listener.closed();
    else this.#listener.failed(isHostError(error) ? error : unexpectedError(this.#server, error));
  }

  #onLost(error: HostError): void {
    if (this.#isClosing) return;
    if (this.#connection) this.#listener.lost(error);
    else this.#lostBy ??= error;
  }

  async #shut(connection: C, isOrderly: boolean): Promise<void> {
    try {
      const drained = isOrderly ? connection.drain?.(drainMsMax) : undefined;
      if (drained !== undefined) await drained;
      await connection.close();
    } catch (error) {
      this.#listener.closeFailed(error);
    }
  }
}

/** Verifies a suspect connection: one check at a time, with a time limit. A check that was ended by `end` reports nothing. */
export class HealthCheck<C extends Connection> {
  readonly #clock: Clock;
  readonly #verify: Verify<C>;
  readonly #limitMs: number;
  #cancel: Cancel | undefined;

  constructor(clock: Clock, verify: Verify<C>, limitMs: number) {
    this.#clock = clock;
    this.#verify = verify;
    this.#limitMs = limitMs;
  }

  /** No effect while a check runs: its result serves all callers. */
  begin(connection: C, conclude: (isAlive: boolean) => void): void {
    if (this.#cancel) return;
    const deadlineAtMs = this.#clock.nowMs() + this.#limitMs;
    const settle = (isAlive: boolean) => {
      if (this.#cancel !== cancel) return;
      this.end();
      conclude(isAlive);
    };
    const cancel = this.#clock.at(deadlineAtMs, () => settle(false));
    this.#cancel = cancel;
    const verify = async () => this.#verify(connection, deadlineAtMs);
    verify().then(settle, () => settle(false));
  }

  end(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}
