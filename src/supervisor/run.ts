/**
 * One run of a server: waits at the gate, connects, is lost or closed. What is closed in good order may first finish what it
 * was asked.
 * Not here: when to open and when to close (server-state.ts decides, supervisor.ts tells).
 *
 * Invariants: whatever was opened is closed, also what comes up late or dead; `failed` and `closed` are said only when
 * nothing is left open; after `close` nothing but `closed` is said, once.
 */
import { type HostError, isHostError } from '../kernel/errors.js';
import type { Connect, Connection } from './ports.js';
import type { Gate } from './start-gate.js';
import { unexpectedError } from './unexpected-error.js';

/** How long calls under way may go on when their server is stopped. */
export const drainMsMax = 5_000;

export interface RunListener<C> {
  opened(connection: C): void;
  failed(error: HostError): void;
  lost(error: HostError): void;
  closed(): void;
  /** Closing failed: the connection counts as closed, but somebody should know. */
  closeFailed(error: unknown): void;
}

export class Run<C extends Connection> {
  readonly #server: string;
  readonly #listener: RunListener<C>;
  readonly #abort = new AbortController();
  #withdraw: () => boolean = () => false;
  #connection: C | undefined;
  /** Lost before it was even handed to us. */
  #lostBy: HostError | undefined;
  #isClosing = false;

  constructor(server: string, listener: RunListener<C>) {
    this.#server = server;
    this.#listener = listener;
  }

  open(run: number, gate: Gate, connect: Connect<C>): void {
    this.#withdraw = gate.enter({
      isWanted: () => !this.#isClosing,
      begin: (done) => void this.#connect(run, connect).finally(done),
    });
  }

  /** `isOrderly`: nothing is wrong with it, so that what it still owes is worth waiting for. */
  close(isOrderly: boolean): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    if (this.#withdraw()) this.#listener.closed();
    else if (this.#connection) void this.#shut(this.#connection, isOrderly).then(() => this.#listener.closed());
    // Otherwise the attempt is under way, and says `closed` itself when it has ended.
    else this.#abort.abort();
  }

  /** Settles when the attempt is over, and always resolves. */
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
