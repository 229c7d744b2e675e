/**
 * Sends writes of rows and matches their acknowledgements. `KV.put` does the same with a timer, an error object and six promises for each
 * write, which was a tenth of the time of a busy host.
 *
 * Invariant: every write ends: with an acknowledgement, an error of the server, a lost connection or after a second.
 */
import type { Clock } from '../../kernel/clock.js';
import { PendingAnswers } from '../protocol/pending-answers.js';
import { bufferOf, loadNats, type NatsConnection } from './nats-client.js';

/**
 * Runs functions together at the end of the turn of the event loop. The NATS client writes to its socket once for all messages of one
 * function, but once for each of them when they come from different promises: that was a fifth of the time of a busy host.
 */
export class TurnBatch {
  #functions: (() => void)[] = [];

  /** The function must not throw. */
  add(run: () => void): void {
    if (this.#functions.push(run) > 1) return;
    setImmediate(() => {
      const functions = this.#functions;
      this.#functions = [];
      for (const each of functions) each();
    });
  }
}

/** Longest wait for an acknowledgement. It may never come, e.g. after a change of the leader. */
const answerMs = 1_000;

/** Error code of JetStream for a stream that is not there. An empty answer means the same: nothing listens. */
export const noStream = 10059;

export class RowWrites {
  readonly #connection: NatsConnection;
  readonly #batch: TurnBatch;
  readonly #headers: Awaited<ReturnType<typeof loadNats>>['headers'];
  readonly #inbox: string;
  /** By the last token of the reply subject. */
  readonly #pending: PendingAnswers<number>;
  #count = 0;

  private constructor(
    connection: NatsConnection,
    clock: Clock,
    batch: TurnBatch,
    nats: Awaited<ReturnType<typeof loadNats>>,
  ) {
    [this.#connection, this.#batch, this.#headers] = [connection, batch, nats.headers];
    this.#pending = new PendingAnswers(clock, answerMs, () => new Error('no acknowledgement came'));
    this.#inbox = nats.createInbox();
    connection.subscribe(`${this.#inbox}.*`, {
      callback: (error, { subject, data }) => {
        if (!error) this.#answered(subject.slice(this.#inbox.length + 1), bufferOf(data));
      },
    });
  }

  static async open(connection: NatsConnection, clock: Clock, batch: TurnBatch): Promise<RowWrites> {
    return new RowWrites(connection, clock, batch, await loadNats());
  }

  /** Resolves with the sequence. `code` of an error is that of JetStream. */
  put(subject: string, value: Uint8Array, previousSeq: number): Promise<number> {
    const id = String(++this.#count);
    this.#batch.add(() => {
      try {
        const headers = this.#headers();
        headers.set('Nats-Expected-Last-Subject-Sequence', String(previousSeq));
        this.#connection.publish(subject, value, { headers, reply: `${this.#inbox}.${id}` });
      } catch (error) {
        this.#pending.reject(id, error as Error);
      }
    });
    return this.#pending.wait(id);
  }

  /** The connection is lost: no answer comes. */
  fail(): void {
    this.#pending.rejectAll(new Error('the connection was lost'));
  }

  #answered(id: string, bytes: Buffer): void {
    try {
      if (bytes.length === 0)
        return this.#pending.reject(id, Object.assign(new Error('no stream'), { code: noStream }));
      const { seq, error } = JSON.parse(bytes.toString()) as { seq?: number; error?: { err_code: number } };
      if (seq !== undefined && !error) return this.#pending.resolve(id, seq);
      this.#pending.reject(id, Object.assign(new Error('the write was refused'), { code: error?.err_code }));
    } catch (error) {
      this.#pending.reject(id, error as Error);
    }
  }
}
