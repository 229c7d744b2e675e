/**
 * Sends writes of rows and matches their acknowledgements. `KV.put` does the same with a timer, an error object and six promises for each
 * write, which was a tenth of the time of a busy host.
 *
 * Invariant: every write ends: with an acknowledgement, an error of the server, a lost connection or after a second.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
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

interface Waiting {
  readonly sinceMs: number;
  readonly resolve: (seq: number) => void;
  readonly reject: (error: Error) => void;
}

/** Longest wait for an acknowledgement. It may never come, e.g. after a change of the leader. */
const answerMs = 1_000;
const sweepMs = 250;

export class RowWrites {
  readonly #connection: NatsConnection;
  readonly #clock: Clock;
  readonly #batch: TurnBatch;
  readonly #headers: Awaited<ReturnType<typeof loadNats>>['headers'];
  readonly #inbox: string;
  /** By the last token of the reply subject, in the order in which they were sent. */
  readonly #waiting = new Map<string, Waiting>();
  #count = 0;
  #cancelSweep: Cancel | undefined;

  private constructor(
    connection: NatsConnection,
    clock: Clock,
    batch: TurnBatch,
    nats: Awaited<ReturnType<typeof loadNats>>,
  ) {
    [this.#connection, this.#clock, this.#batch, this.#headers] = [connection, clock, batch, nats.headers];
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
    return new Promise((resolve, reject) => {
      const id = String(++this.#count);
      this.#waiting.set(id, { sinceMs: this.#clock.nowMs(), resolve, reject });
      this.#cancelSweep ??= this.#clock.at(this.#clock.nowMs() + sweepMs, () => this.#sweep());
      this.#batch.add(() => {
        try {
          const headers = this.#headers();
          headers.set('Nats-Expected-Last-Subject-Sequence', String(previousSeq));
          this.#connection.publish(subject, value, { headers, reply: `${this.#inbox}.${id}` });
        } catch (error) {
          this.#take(id)?.reject(error as Error);
        }
      });
    });
  }

  /** The connection is lost: no answer comes. */
  fail(): void {
    for (const id of [...this.#waiting.keys()]) this.#take(id)?.reject(new Error('the connection was lost'));
  }

  #answered(id: string, bytes: Buffer): void {
    const waiting = this.#take(id);
    if (!waiting) return;
    try {
      // An empty answer means that no stream listens.
      const { seq, error } = JSON.parse(bytes.toString()) as { seq?: number; error?: { err_code: number } };
      if (seq !== undefined && !error) return waiting.resolve(seq);
      waiting.reject(Object.assign(new Error('the write was refused'), { code: error?.err_code }));
    } catch (error) {
      waiting.reject(error as Error);
    }
  }

  #take(id: string): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    return waiting;
  }

  #sweep(): void {
    this.#cancelSweep = undefined;
    const nowMs = this.#clock.nowMs();
    for (const [id, { sinceMs }] of this.#waiting) {
      if (nowMs - sinceMs < answerMs) break;
      this.#take(id)?.reject(new Error('no acknowledgement came'));
    }
    if (this.#waiting.size > 0) this.#cancelSweep = this.#clock.at(nowMs + sweepMs, () => this.#sweep());
  }
}
