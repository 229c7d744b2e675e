/**
 * Asks for the outcome of calls that have a receipt, and acknowledges replies. It asks after each reconnect, and every 5 s. A reply may be
 * lost with a connection, or exceed the bound of unread bytes at the host, or the host may be gone. Cancels of calls without an outcome are
 * repeated at the same times, because a host may have missed them. A new connection repeats the last acknowledgements: a host that was
 * killed may not have removed these replies, and they would count for this worker until they expire.
 * Not here: the calls (call-table.ts).
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { brokerLimits } from '../protocol/limits.js';
import type { WorkerConnection } from './connection.js';

const askMs = 5_000;
/** A host keeps a reply until its acknowledgement, so the delay is short. */
const ackMs = 10;
const acksPerMessage = 32;
/** Bound of waiting acknowledgements, and of sent ones. A reply that is never acknowledged expires at the host. */
const acksMax = 1_024;

export interface OutcomesParts {
  readonly clock: Clock;
  /** Keys of the calls that have a receipt and no outcome. */
  waiting(): readonly string[];
  /** Returns how many cancelled calls have no outcome. */
  cancelAgain(connection: WorkerConnection): number;
  isWaiting(key: string): boolean;
  /** No host has the call any more. */
  resend(key: string): void;
}

export class Outcomes {
  #connection: WorkerConnection | undefined;
  #cancelAsk: Cancel | undefined;
  readonly #acks = new Set<string>();
  /** The oldest first. */
  readonly #sentAcks = new Map<string, true>();
  #cancelFlush: Cancel | undefined;

  constructor(private readonly parts: OutcomesParts) {}

  use(connection: WorkerConnection | undefined): void {
    this.#connection = connection;
    if (connection) for (const key of this.#sentAcks.keys()) this.#acks.add(key);
    this.flush();
    this.#cancelAsk?.();
    this.#askAll();
  }

  /** A call has a receipt, or was cancelled. */
  askLater(): void {
    const { clock } = this.parts;
    if (this.#connection) this.#cancelAsk ??= clock.at(clock.nowMs() + askMs, () => this.#askAll());
  }

  acknowledge(key: string): void {
    const { clock } = this.parts;
    if (this.#acks.size >= acksMax) return;
    this.#acks.add(key);
    if (this.#acks.size >= acksPerMessage) this.flush();
    else this.#cancelFlush ??= clock.at(clock.nowMs() + ackMs, () => this.flush());
  }

  /** Sends the acknowledgements that wait, many in one message. */
  flush(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    if (!this.#connection) return;
    const keys = [...this.#acks];
    this.#acks.clear();
    for (const key of keys) setBounded(this.#sentAcks, key, true, acksMax);
    for (const some of partsOf(keys, acksPerMessage)) this.#connection.acknowledge(some);
  }

  #askAll(): void {
    this.#cancelAsk = undefined;
    if (!this.#connection) return;
    const cancelled = this.parts.cancelAgain(this.#connection);
    const keys = this.parts.waiting();
    for (const some of partsOf(keys, brokerLimits.keysPerMessage)) void this.#ask(some);
    if (keys.length + cancelled > 0) this.askLater();
  }

  async #ask(keys: readonly string[]): Promise<void> {
    const { isWaiting, resend } = this.parts;
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

function* partsOf(keys: readonly string[], size: number): Generator<readonly string[]> {
  for (let at = 0; at < keys.length; at += size) yield keys.slice(at, at + size);
}
