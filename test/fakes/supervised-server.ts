/**
 * A scripted server for tests of supervision: it opens, fails, hangs, starts late or dies. It counts connections, so that tests can
 * check that runs never overlap and none stays open.
 */
import type { Clock } from '../../src/kernel/clock.js';
import { HostError } from '../../src/kernel/errors.js';
import type { Connect, Connection } from '../../src/supervisor/ports.js';

export interface Attempt {
  /** Duration of the start; 0: it opens in the same tick. */
  readonly afterMs?: number;
  /** The start fails with this error. */
  readonly error?: unknown;
  /** The start continues after an abort. */
  readonly ignoresAbort?: boolean;
  /** The connection is lost before `connect` resolves. */
  readonly isStillborn?: boolean;
  /** How long closing takes. */
  readonly closeMs?: number;
  readonly closeError?: Error;
}

export class FakeConnection implements Connection {
  closedBy: HostError | undefined;
  isAtWork = false;
  readonly run: number;
  readonly #onLost: (error: HostError) => void;
  readonly #close: () => Promise<void>;
  #closing: Promise<void> | undefined;

  constructor(run: number, onLost: (error: HostError) => void, close: () => Promise<void>) {
    this.run = run;
    this.#onLost = onLost;
    this.#close = close;
  }

  die(error: HostError = crashed()): void {
    this.dieSilently(error);
    this.#onLost(error);
  }

  /** Ends the connection without calling `onLost`; only `closedBy` shows it. */
  dieSilently(error: HostError = crashed()): void {
    this.closedBy ??= error;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }
}

export const crashed = (): HostError =>
  new HostError('transport', 'it exited with code 1', { reason: 'exit', exitCode: 1, execution: 'uncertain' });

export class FakeServer {
  /** Script of the next attempt. */
  next: (run: number) => Attempt = () => ({});
  /** When each attempt began. */
  readonly startedAtMs: number[] = [];
  /** The newest connection that was opened. */
  connection: FakeConnection | undefined;
  /** Number of running attempts and connections that are not closed. */
  live = 0;
  liveMax = 0;
  opened = 0;
  closed = 0;
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get starts(): number {
    return this.startedAtMs.length;
  }

  readonly connect: Connect<FakeConnection> = (run, signal, onLost) => {
    const attempt = this.next(run);
    this.startedAtMs.push(this.#clock.nowMs());
    this.live++;
    this.liveMax = Math.max(this.liveMax, this.live);
    const { afterMs = 0, ignoresAbort = false } = attempt;
    if (afterMs === 0) return this.#end(run, attempt, onLost);
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.at(afterMs + this.#clock.nowMs(), () => resolve(this.#end(run, attempt, onLost)));
      if (ignoresAbort) return;
      const onAbort = () => {
        cancel();
        this.live--;
        reject(new HostError('cancelled', 'the start was cancelled'));
      };
      signal.addEventListener('abort', onAbort, { once: true });
    });
  };

  async #end(run: number, attempt: Attempt, onLost: (error: HostError) => void): Promise<FakeConnection> {
    if (attempt.error !== undefined) {
      this.live--;
      throw attempt.error;
    }
    this.opened++;
    const connection = new FakeConnection(run, onLost, () => this.#shut(attempt));
    this.connection = connection;
    if (attempt.isStillborn) connection.die();
    return connection;
  }

  async #shut({ closeMs = 0, closeError }: Attempt): Promise<void> {
    if (closeMs > 0) {
      const atMs = this.#clock.nowMs() + closeMs;
      await new Promise<void>((resolve) => void this.#clock.at(atMs, resolve));
    }
    this.live--;
    this.closed++;
    if (closeError) throw closeError;
  }
}
