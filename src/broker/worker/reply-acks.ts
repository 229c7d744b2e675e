/**
 * Acknowledges replies, many in one message. Keys wait here while there is no connection. The last ones are acknowledged again over the
 * next connection: a host that was killed may not have removed these replies, which would count for this worker until they expire.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { WorkerConnection } from './connection.js';

/** A host keeps a reply until its acknowledgement, so the delay is short. */
const delayMs = 10;
const keysPerMessage = 32;
/** Waiting, and sent before. A host removes a reply without an acknowledgement when it expires. */
const keysMax = 1_024;

export class ReplyAcks {
  readonly #clock: Clock;
  readonly #waiting = new Set<string>();
  /** The oldest first. */
  readonly #sent = new Map<string, true>();
  #connection: WorkerConnection | undefined;
  #cancel: Cancel | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  use(connection: WorkerConnection | undefined): void {
    this.#connection = connection;
    for (const key of connection ? this.#sent.keys() : []) this.#waiting.add(key);
    this.flush();
  }

  add(key: string): void {
    if (this.#waiting.size >= keysMax) return;
    this.#waiting.add(key);
    if (this.#waiting.size >= keysPerMessage) this.flush();
    else this.#cancel ??= this.#clock.at(this.#clock.nowMs() + delayMs, () => this.flush());
  }

  flush(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    if (!this.#connection || this.#waiting.size === 0) return;
    const keys = [...this.#waiting];
    this.#waiting.clear();
    for (const key of keys) setBounded(this.#sent, key, true, keysMax);
    for (let at = 0; at < keys.length; at += keysPerMessage)
      this.#connection.acknowledge(keys.slice(at, at + keysPerMessage));
  }
}
