/**
 * A server that does as it is told, for tests of whoever supervises it: opens, fails, hangs, comes up late, dies.
 * It keeps count, so that a test can hold that runs never overlap and nothing is left open.
 */
import type { Clock } from '../../src/kernel/clock.js';
import { HostError } from '../../src/kernel/errors.js';
import type { Connect, Connection } from '../../src/supervisor/ports.js';

export interface Attempt {
  /** How long the start takes; 0 opens in the same tick. */
  readonly afterMs?: number;
  /** It ends this way instead of opening. */
  readonly error?: unknown;
  /** It goes on although nobody wants it any more. */
  readonly ignoresAbort?: boolean;
  /** It is gone before it could be handed over. */
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

  /** Nobody is told; whoever looks can see it. */
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
  /** What the next attempt does. */
  next: (run: number) => Attempt = () => ({});
  /** When each attempt began. */
  readonly startedAtMs: number[] = [];
  /** The newest connection that was opened. */
  connection: FakeConnection | undefined;
  /** Attempts under way and connections not yet closed. */
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
        reject(new HostError('cancelled', 'the start was called off'));
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
