/**
 * Keeps what is known of one connection's tools: reads them when it opens, and again when the server says they changed.
 * A server without its tools known is not ready: its read-only tools could not be told from the others.
 * Not here: the rhythm of readings (list-reader.ts), what follows from them (managed-server.ts).
 *
 * Invariant: a connection that was lost while its tools were read is closed before anybody hears of it.
 */
import type { Clock } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import type { CallOptions, Session } from '../session/session.js';
import { type BeginReading, ListReader } from './list-reader.js';

export class ToolReader {
  readonly #list: ListReader;
  readonly #onProblem: (error: unknown) => void;
  #session: Session | undefined;

  constructor(clock: Clock, begin: BeginReading, onProblem: (error: unknown) => void) {
    this.#list = new ListReader('tools/list', clock, begin, onProblem);
    this.#onProblem = onProblem;
  }

  /** Resolves when the tools are known, or the server has said that it cannot tell; rejects when the connection is lost. */
  async begin(session: Session, limits: CallOptions): Promise<void> {
    this.#session = session;
    try {
      await this.#list.readOnce(session, limits);
    } catch (error) {
      // A server that answers, if only with an error, can still be called.
      if (!isHostError(error) || session.closedBy || error.code !== 'protocol_error') {
        await session.close();
        throw error;
      }
      this.#onProblem(error);
    }
  }

  changed(): void {
    if (this.#session) this.#list.changed(this.#session);
  }
}
