/**
 * Tells the host which replies have arrived, many in one message. Keys are kept while there is no connection. The last ones are told again
 * over the next connection: a host that was killed may not have removed these replies, which would count for this worker until they expire.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { WorkerConnection } from './connection.js';

/** A host keeps a reply until it is told, so the delay is short. */
const delayMs = 10;
const keysPerMessage = 32;
/** Without a connection, or told before. A host forgets a reply by itself in the end. */
const keysMax = 1_024;

export class TakenKeys {
  readonly #clock: Clock;
  readonly #keys = new Set<string>();
  /** Keys that were told, the oldest first. */
  readonly #told = new Map<string, true>();
  #connection: WorkerConnection | undefined;
  #cancel: Cancel | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  use(connection: WorkerConnection | undefined): void {
    this.#connection = connection;
    for (const key of connection ? this.#told.keys() : []) this.#keys.add(key);
    this.flush();
  }

  add(key: string): void {
    if (this.#keys.size >= keysMax) return;
    this.#keys.add(key);
    if (this.#keys.size >= keysPerMessage) this.flush();
    else this.#cancel ??= this.#clock.at(this.#clock.nowMs() + delayMs, () => this.flush());
  }

  flush(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    if (!this.#connection || this.#keys.size === 0) return;
    const keys = [...this.#keys];
    this.#keys.clear();
    for (const key of keys) setBounded(this.#told, key, true, keysMax);
    for (let at = 0; at < keys.length; at += keysPerMessage)
      this.#connection.taken(keys.slice(at, at + keysPerMessage));
  }
}
