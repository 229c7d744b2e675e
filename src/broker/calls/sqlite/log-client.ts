/**
 * The log's thread, seen from the main thread. All operations of one turn of the event loop are one message.
 * Not here: the thread (log-thread.ts), the meaning of operations (sqlite-call-log.ts).
 *
 * Invariants: every question is answered or rejected, also when the thread ends. After a failure nothing is sent.
 */
import { Worker } from 'node:worker_threads';
import type { HostError } from '../../../kernel/errors.js';
import { logClosed, logFailed } from './log-errors.js';
import {
  type Answer,
  type Answered,
  type FromThread,
  fromPlain,
  type Operation,
  type ThreadData,
  type ToThread,
  transfersOf,
} from './log-messages.js';
import { logThreadStart } from './log-thread-start.js';

export interface LogClientOptions {
  readonly data: ThreadData;
  /** For the expiry of rows. */
  readonly wallMs: () => number;
  readonly onProblem: (error: HostError) => void;
  /** Before the answers are given. */
  readonly onAnswered: (message: Pick<Answered, 'changes'> & Partial<Answered>) => void;
  readonly onFailed: () => void;
}

interface Waiting {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: HostError) => void;
}

export class LogClient {
  readonly opened: Promise<void>;
  readonly #options: LogClientOptions;
  readonly #thread: Worker;
  readonly #exited: Promise<void>;
  /**
   * Operations for the next message, in the order in which they came: a call that is sent again before its reply is acknowledged must find
   * its row. Those that nothing waits for cost no sync of their own.
   */
  #next: Operation[] = [];
  /** How many of `#next` have a waiting caller. */
  #unsent = 0;
  #waiting: Waiting[] = [];
  #failure: string | undefined;
  #isClosed = false;
  /** Ends the wait of `close` when the log fails: its thread then keeps running. */
  #endClose = () => {};

  constructor(options: LogClientOptions) {
    this.#options = options;
    const { script, isCode } = logThreadStart();
    // Neither secrets of the environment nor flags of this process are meant for the thread.
    this.#thread = new Worker(script, { eval: isCode, workerData: options.data, env: {}, execArgv: [] });
    this.opened = new Promise((resolve, reject) => {
      this.#thread.on('message', (message: FromThread) => this.#heard(message, resolve, reject));
      this.#thread.once('error', (error) => {
        reject(logFailed(error.message, 'not_executed'));
        this.#failed(error.message);
      });
    });
    this.#exited = new Promise((resolve) => {
      this.#thread.once('exit', () => {
        if (!this.#isClosed) this.#failed('its thread ended');
        resolve();
      });
    });
  }

  get hasFailed(): boolean {
    return this.#failure !== undefined;
  }

  /** The error for operations after a failure or a close; undefined while the log is open. */
  gone(execution: 'uncertain' | 'not_executed'): HostError | undefined {
    if (this.#failure !== undefined) return logFailed(this.#failure, execution);
    return this.#isClosed ? logClosed() : undefined;
  }

  ask(operation: Operation): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const gone = this.gone('not_executed');
      if (gone) return reject(gone);
      if (this.#waiting.length === 0) this.#thread.ref();
      this.#waiting.push({ resolve, reject });
      this.#next.push(operation);
      if (++this.#unsent === 1) setImmediate(() => this.flush());
    });
  }

  /** Returns how many such operations wait for the next message. */
  enqueue(operation: Operation): number {
    return this.#next.push(operation) - this.#unsent;
  }

  flush(): void {
    if (this.hasFailed || this.#next.length === 0) return;
    const operations = this.#next;
    [this.#next, this.#unsent] = [[], 0];
    this.#post({ operations, nowMs: this.#options.wallMs() });
  }

  async close(): Promise<void> {
    // The thread keeps the lock of a failed log until the process ends.
    if (this.hasFailed || this.#isClosed) return;
    this.flush();
    this.#isClosed = true;
    this.#thread.ref();
    const failed = new Promise<void>((resolve) => {
      this.#endClose = resolve;
    });
    this.#post({ close: true });
    await Promise.race([this.#exited, failed]);
    for (const { reject } of this.#waiting) reject(logClosed());
  }

  #post(message: ToThread): void {
    this.#thread.postMessage(message, 'operations' in message ? transfersOf(message.operations) : []);
  }

  #heard(message: FromThread, resolve: () => void, reject: (error: HostError) => void): void {
    const { onProblem, onAnswered } = this.#options;
    if ('problems' in message) for (const problem of message.problems) onProblem(fromPlain(problem));
    switch (message.kind) {
      case 'opened':
        this.#thread.unref();
        onAnswered({ changes: message.changes });
        return resolve();
      case 'refused':
        this.#isClosed = true;
        return reject(fromPlain(message.error));
      case 'failed':
        return this.#failed(message.cause);
      case 'answered':
        onAnswered(message);
        return this.#settle(message.answers);
      default:
        return message satisfies never;
    }
  }

  #settle(answers: readonly Answer[]): void {
    const settled = this.#waiting.splice(0, answers.length);
    if (this.#waiting.length === 0 && !this.#isClosed) this.#thread.unref();
    settled.forEach(({ resolve, reject }, at) => {
      const answer = answers[at] as Answer;
      if (answer.kind === 'error') reject(fromPlain(answer.error));
      else resolve(answer);
    });
  }

  #failed(cause: string): void {
    if (this.hasFailed) return;
    this.#failure = cause;
    this.#thread.unref();
    this.#options.onProblem(logFailed(cause, 'not_executed'));
    const waiting = this.#waiting;
    const sent = waiting.length - this.#unsent;
    [this.#waiting, this.#next] = [[], []];
    // Operations that were not sent to the thread were certainly not written.
    waiting.forEach(({ reject }, at) => {
      reject(logFailed(cause, at < sent ? 'uncertain' : 'not_executed'));
    });
    this.#options.onFailed();
    this.#endClose();
  }
}
