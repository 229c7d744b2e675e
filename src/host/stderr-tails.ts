/**
 * The end of each server's stderr, also after its process has ended: it often shows the cause.
 * Not here: storing and redacting the bytes of one process (transports/stdio/stderr-ring.ts).
 *
 * Invariants: each server has its newest process and the last earlier process that wrote anything. The earlier text is shown
 * until the newest process has written. Client instances are not stored.
 */

import { StdioChannel } from '../transports/stdio/stdio-channel.js';
import type { Channel } from '../wire/channel.js';

type Tail = (maxBytes?: number) => string;

export class StderrTails {
  readonly #byServer = new Map<string, { readonly now: Tail; readonly before: Tail | undefined }>();

  /** Ignores channels without a process. */
  opened(server: string, channel: Channel): void {
    if (channel instanceof StdioChannel) this.began(server, channel.describe().stderrTail);
  }

  began(server: string, now: Tail): void {
    const last = this.#byServer.get(server);
    this.#byServer.set(server, { now, before: last && (last.now() === '' ? last.before : last.now) });
  }

  /** Undefined: the server never had a process. */
  of(server: string, maxBytes?: number): string | undefined {
    const tails = this.#byServer.get(server);
    return tails && (tails.now(maxBytes) || tails.before?.(maxBytes) || '');
  }

  forget(server: string): void {
    this.#byServer.delete(server);
  }
}
