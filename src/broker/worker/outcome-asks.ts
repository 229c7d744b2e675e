/**
 * Asks for the outcome of calls that have a receipt: at once after a reconnect, and every 5 s. A reply may have been lost with a connection,
 * may not have fitted into what the host sends, or the host may be gone.
 * Not here: the calls (call-table.ts).
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { isHostError } from '../../kernel/errors.js';
import { brokerLimits } from '../protocol/limits.js';
import type { WorkerConnection } from './connection.js';

const everyMs = 5_000;

export interface OutcomeAsksParts {
  readonly clock: Clock;
  /** Keys of the calls that have a receipt and no outcome, by the owner that the receipt names. */
  waiting(): ReadonlyMap<string, readonly string[]>;
  isWaiting(key: string): boolean;
  /** The host does not know the call, or is gone. */
  resend(key: string): void;
}

export class OutcomeAsks {
  readonly #parts: OutcomeAsksParts;
  #connection: WorkerConnection | undefined;
  #cancel: Cancel | undefined;

  constructor(parts: OutcomeAsksParts) {
    this.#parts = parts;
  }

  use(connection: WorkerConnection | undefined): void {
    this.#connection = connection;
    this.#cancel?.();
    this.#cancel = undefined;
    if (connection) this.#askAll();
  }

  /** A call has a receipt. */
  start(): void {
    const { clock } = this.#parts;
    if (this.#connection) this.#cancel ??= clock.at(clock.nowMs() + everyMs, () => this.#askAll());
  }

  #askAll(): void {
    this.#cancel = undefined;
    const waiting = this.#parts.waiting();
    for (const [owner, keys] of waiting)
      for (let at = 0; at < keys.length; at += brokerLimits.keysPerMessage)
        void this.#ask(owner, keys.slice(at, at + brokerLimits.keysPerMessage));
    if (waiting.size > 0) this.start();
  }

  async #ask(owner: string, keys: readonly string[]): Promise<void> {
    const { isWaiting, resend } = this.#parts;
    const connection = this.#connection;
    try {
      const asked = await connection?.ask(owner, keys);
      if (!asked || this.#connection !== connection) return;
      const isOpen = new Set([...asked.running, ...asked.resend]);
      for (const key of asked.resend) if (isWaiting(key)) resend(key);
      // Replies came with the answer. More of them may wait for room in what the host sends.
      const wasAnswered = keys.some((key) => !isOpen.has(key) && !isWaiting(key));
      const left = keys.filter(isWaiting);
      if (wasAnswered && left.length > 0) await this.#ask(owner, left);
    } catch (error) {
      if (this.#connection !== connection || !isHostError(error) || error.details.reason !== 'no_owner') return;
      for (const key of keys) if (isWaiting(key)) resend(key);
    }
  }
}
