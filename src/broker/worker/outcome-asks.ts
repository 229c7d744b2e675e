/**
 * Asks for the outcome of calls that have a receipt: at once after a reconnect, and every 5 s. A reply may have been lost with a connection,
 * may not have fitted into what the host sends, or the host may be gone: any host answers, from the log.
 * Cancelled calls are cancelled again at the same times, because their host may have missed it.
 * Not here: the calls (call-table.ts).
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { brokerLimits } from '../protocol/limits.js';
import type { WorkerConnection } from './connection.js';

const everyMs = 5_000;

export interface OutcomeAsksParts {
  readonly clock: Clock;
  /** Keys of the calls that have a receipt and no outcome. */
  waiting(): readonly string[];
  /** Returns how many cancelled calls have no outcome. */
  cancelAgain(connection: WorkerConnection): number;
  isWaiting(key: string): boolean;
  /** No host has the call any more. */
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
    this.#askAll();
  }

  /** A call has a receipt, or was cancelled. */
  start(): void {
    const { clock } = this.#parts;
    if (this.#connection) this.#cancel ??= clock.at(clock.nowMs() + everyMs, () => this.#askAll());
  }

  #askAll(): void {
    this.#cancel = undefined;
    if (!this.#connection) return;
    const cancelled = this.#parts.cancelAgain(this.#connection);
    const keys = this.#parts.waiting();
    for (let at = 0; at < keys.length; at += brokerLimits.keysPerMessage)
      void this.#ask(keys.slice(at, at + brokerLimits.keysPerMessage));
    if (keys.length + cancelled > 0) this.start();
  }

  async #ask(keys: readonly string[]): Promise<void> {
    const { isWaiting, resend } = this.#parts;
    const connection = this.#connection;
    try {
      const asked = await connection?.ask(keys);
      if (!asked || this.#connection !== connection) return;
      const isOpen = new Set([...asked.running, ...asked.resend]);
      for (const key of asked.resend) if (isWaiting(key)) resend(key);
      // Replies came with the answer. More of them may wait for room in what the host sends.
      const wasAnswered = keys.some((key) => !isOpen.has(key) && !isWaiting(key));
      const left = keys.filter(isWaiting);
      if (wasAnswered && left.length > 0) await this.#ask(left);
    } catch {
      // Asked again in a while.
    }
  }
}
