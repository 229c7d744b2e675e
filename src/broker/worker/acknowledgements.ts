/**
 * Acknowledges replies, many in one message. A new connection repeats the last acknowledgements: a host that was killed may not have
 * removed these replies, and they would count for this worker until they expire.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { WorkerConnection } from './connection.js';

/** How long an acknowledgement waits for others. This is short, because a host keeps a reply until its acknowledgement. */
const ackMs = 10;
const acksPerMessage = 32;
/** Bound of waiting acknowledgements, and of sent ones. A reply that is never acknowledged expires at the host. */
const acksMax = 1_024;

export class Acknowledgements {
  #connection: WorkerConnection | undefined;
  readonly #waiting = new Set<string>();
  /** The oldest first. */
  readonly #sent = new Map<string, true>();
  #cancelFlush: Cancel | undefined;

  constructor(private readonly clock: Clock) {}

  use(connection: WorkerConnection | undefined): void {
    this.#connection = connection;
    if (connection) for (const key of this.#sent.keys()) this.#waiting.add(key);
    this.flush();
  }

  add(key: string): void {
    if (this.#waiting.size >= acksMax) return;
    this.#waiting.add(key);
    if (this.#waiting.size >= acksPerMessage) this.flush();
    else this.#cancelFlush ??= this.clock.at(this.clock.nowMs() + ackMs, () => this.flush());
  }

  /** Sends the acknowledgements that wait. */
  flush(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    if (!this.#connection) return;
    const keys = [...this.#waiting];
    this.#waiting.clear();
    for (const key of keys) setBounded(this.#sent, key, true, acksMax);
    for (const some of partsOf(keys, acksPerMessage)) this.#connection.send({ op: 'ack', keys: some });
  }
}

export function* partsOf(keys: readonly string[], size: number): Generator<readonly string[]> {
  for (let at = 0; at < keys.length; at += size) yield keys.slice(at, at + size);
}
