/**
 * The end of what the process of each server wrote to stderr, also when it is gone: why it ended is what one looks for then.
 * Not here: keeping and cleaning the bytes of one process (transports/stdio/stderr-ring.ts), what status shows of a run.
 *
 * Invariants: of one server at most two processes are remembered, the newest and the last before it that wrote anything; the
 * older one is shown until the newest has written something; instances of clients are not remembered.
 */

import { StdioChannel } from '../transports/stdio/stdio-channel.js';
import type { Channel } from '../wire/channel.js';

type Tail = (maxBytes?: number) => string;

export class StderrTails {
  readonly #byServer = new Map<string, { readonly now: Tail; readonly before: Tail | undefined }>();

  /** Another process, or none where it is no server with a process. */
  opened(server: string, channel: Channel): void {
    if (channel instanceof StdioChannel) this.began(server, channel.describe().stderrTail);
  }

  began(server: string, now: Tail): void {
    const last = this.#byServer.get(server);
    this.#byServer.set(server, { now, before: last && (last.now() === '' ? last.before : last.now) });
  }

  /** Undefined when it never had a process. */
  of(server: string, maxBytes?: number): string | undefined {
    const words = this.#byServer.get(server);
    return words && (words.now(maxBytes) || words.before?.(maxBytes) || '');
  }

  /** Nothing, or another server, has the name from here on. */
  forget(server: string): void {
    this.#byServer.delete(server);
  }
}
