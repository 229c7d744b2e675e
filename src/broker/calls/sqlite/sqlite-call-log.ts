/**
 * The log of calls of one host: a SQLite file, written by a thread so that the event loop never waits for the disk. All operations
 * of one turn of the event loop are one message.
 * Not here: the thread (log-thread.ts) and its rows (log-store.ts), the bounds (call-bounds.ts).
 *
 * Invariants: each opening has a new store id, which is also the owner id, so a row with another owner id is of a host that has
 * ended. Every operation is answered or rejected, also when the thread ends. After a failure the thread gets no more operations.
 */
import { realpathSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { LogUsage } from '../../../host/broker-status.js';
import type { Cancel, Clock } from '../../../kernel/clock.js';
import { deferred } from '../../../kernel/deferred.js';
import { HostError } from '../../../kernel/errors.js';
import { makeFolders } from '../../../kernel/make-folders.js';
import { newId } from '../../../kernel/random.js';
import { requireTrusted } from '../../../transports/stdio/state-dir.js';
import { brokerLimits } from '../../protocol/limits.js';
import { readError } from '../../protocol/messages.js';
import { CallBounds, type FirstExpiry, keptMs } from '../call-bounds.js';
import type { CallId, CallLog, CallOutcome, CallRow, NewCall, Received } from '../call-log.js';
import { diskFull, logClosed, logFailed } from './log-errors.js';
import { type Answer, type FromThread, type Operation, transfersOf, type Written } from './log-messages.js';
import { logThreadStart } from './log-thread-start.js';

/** How often free pages are returned to the disk, and a full disk is checked for room. */
const tidyMs = 250;
/** How often expired rows are removed. */
const sweepMs = 30_000;
/** Time for the last writes when the log closes. A disk that hangs must not delay the stop of the host for longer. */
const closeMs = 2_000;
/** At most this many acknowledgements wait to be sent together with another operation; with more, all are sent at once. */
const acksAtOnce = 64;
const never = Number.POSITIVE_INFINITY;

export interface SqliteCallLogOptions {
  /** Undefined: the rows are in memory, for a host without `stateDir`. */
  readonly folder: string | undefined;
  readonly clock: Clock;
  readonly onProblem?: (error: HostError) => void;
  /** Rows of other workers and epochs are purged: their keys were revoked while no host was up. Undefined: none is purged. */
  readonly workers?: readonly { readonly name: string; readonly epoch: string | undefined }[];
}

/**
 * Folders whose log failed in this process. It is not opened again here, because its thread keeps the lock until the process ends. After
 * a failed sync the kernel may return bytes that are not on the disk. So the next process writes and syncs the write-ahead log anew, and
 * then checks the file (log-file.ts).
 */
const failedFolders = new Set<string | undefined>();

/** Rejects with a HostError: `in_use` when another log has the folder. */
export async function openSqliteCallLog(options: SqliteCallLogOptions): Promise<CallLog> {
  const folder = options.folder === undefined ? undefined : privateFolder(options.folder);
  const log = new SqliteCallLog({ ...options, folder });
  await log.opened.promise;
  log.sweep();
  if (options.workers) await log.purgeOthers(options.workers);
  return log;
}

interface Waiter {
  resolve(answer: Answer): void;
  reject(error: HostError): void;
}

class SqliteCallLog implements CallLog {
  readonly storeId = newId();
  readonly owner = this.storeId;
  readonly opened = deferred();
  readonly #folder: string | undefined;
  readonly #clock: Clock;
  readonly #onProblem: (error: HostError) => void;
  readonly #bounds: CallBounds;
  readonly #thread: Worker;
  /** Operations for the next message, in order of arrival: a call that is sent again before its acknowledgement must find its row. */
  #next: Operation[] = [];
  /** Waiters of the operations in `#next` that have an answer, in the order of the operations. */
  #unsent: Waiter[] = [];
  /** The same for the operations that the thread has. */
  #sent: Waiter[] = [];
  #isFlushSoon = false;
  /** The error for operations after a failure or a close. */
  #over: HostError | undefined;
  #isFull = false;
  #expiries: Written['expiries'];
  #closing: Promise<void> | undefined;
  /** Resolves when the thread has ended, or the log has failed and its thread is not waited for. */
  readonly #ended = deferred();
  /** Set while a tidying is due. */
  #cancelTidy: Cancel | undefined;
  #cancelSweep: Cancel = () => {};
  readonly #wallOffsetMs: number;

  constructor({ folder, clock, onProblem = () => {} }: SqliteCallLogOptions) {
    this.#folder = folder;
    this.#clock = clock;
    this.#onProblem = onProblem;
    this.#bounds = new CallBounds(clock, this.#firstExpiryMs);
    this.#wallOffsetMs = clock.date().getTime() - clock.nowMs();
    const startedAt = new Date(this.#wallMs() - process.uptime() * 1_000).toISOString();
    const { script, isCode } = logThreadStart();
    const workerData = { folder, owner: this.owner, startedAt };
    // The thread gets no environment, which may have secrets, and no flags of this process.
    this.#thread = new Worker(script, { eval: isCode, workerData, env: {}, execArgv: [] });
    this.#thread.on('message', (message: FromThread) => this.#heard(message));
    this.#thread.once('error', ({ message }) => this.#fail(message));
    this.#thread.once('exit', () => {
      if (!this.#over) this.#fail('its thread ended');
      this.#ended.resolve();
    });
  }

  refusal(worker: string, isCallersKey: boolean): HostError | undefined {
    if (this.#over || this.#isFull) return this.#over ?? diskFull();
    const refusal = this.#bounds.refusal(worker, isCallersKey);
    // Acknowledgements that wait may make room.
    if (refusal) this.#flushSoon();
    return refusal;
  }

  async receive(call: NewCall): Promise<Received> {
    const { id, digest, isCallersKey, deadlineMs, state, reply } = call;
    const expires = this.#wallMs() + (isCallersKey ? brokerLimits.callersKeyMs : deadlineMs + brokerLimits.unackedMs);
    // Counted before the answer: many calls may come in one turn.
    const row = { worker: id.worker, isCallersKey, open: 1, finished: 0, bytes: 0 };
    this.#bounds.change(row);
    const answer = await this.#ask({
      ...{ op: 'receive', ...id, state, digest, isCallersKey, expires, reply: ownMemory(reply) },
    }).finally(() => this.#bounds.change({ ...row, open: -1 }));
    const known = foundIn(answer);
    if (known) return { isNew: false, row: known };
    const attempts = state === 'running' ? 1 : 0;
    return { isNew: true, row: { state, owner: this.owner, digest, attempts, version: 1, reply } };
  }

  async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const answer = await this.#ask({ op: 'begin', ...id, version });
    return answer.kind === 'done' ? 'begun' : foundIn(answer);
  }

  finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    return this.#bounds.finish(id.worker, outcome, (kept) => this.#finish(id, owner, kept));
  }

  async find(id: CallId): Promise<CallRow | undefined> {
    return foundIn(await this.#ask({ op: 'find', ...id }));
  }

  /** Sent with the next operation that has an answer, so it costs no transaction of its own. Without one it waits for the next tidying. */
  acknowledge(id: CallId): void {
    if (this.#over) return;
    this.#next.push({ op: 'ack', ...id });
    if (this.#next.length >= acksAtOnce || this.#bounds.isWaiting) this.#flushSoon();
    else this.#tidySoon();
  }

  async purge(worker: string, except: readonly string[] = []): Promise<void> {
    await this.#ask({ op: 'purge', worker, except: except.map((epoch) => `${worker} ${epoch}`) });
  }

  /** A purge that fails is reported and left to the next start. Until then no worker can ask for those rows. */
  async purgeOthers(workers: NonNullable<SqliteCallLogOptions['workers']>): Promise<void> {
    const except = workers.map(({ name, epoch }) => (epoch === undefined ? name : `${name} ${epoch}`));
    await this.#ask({ op: 'purge', worker: undefined, except }).catch(this.#onProblem);
  }

  async isGone(owner: string): Promise<boolean> {
    return owner !== this.owner;
  }

  usage(): LogUsage {
    return this.#bounds.usage();
  }

  /** Tidies and removes expired rows, now and from time to time. */
  sweep(): void {
    if (this.#over) return;
    this.#tidy(true);
    this.#cancelSweep = this.#clock.at(this.#clock.nowMs() + sweepMs, () => this.sweep());
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#cancelTidy?.();
    this.#cancelSweep();
    // The thread keeps the lock of a failed log until the process ends.
    if (this.#over) return;
    this.#over = logClosed();
    this.#flush();
    this.#thread.ref();
    this.#thread.postMessage({ close: true });
    const cancel = this.#clock.at(this.#clock.nowMs() + closeMs, () => this.#fail('its disk does not answer'));
    this.#bounds.close(this.#over);
    await this.#ended.promise;
    cancel();
    for (const waiter of this.#sent.splice(0)) waiter.reject(this.#over);
  }

  #ask(operation: Operation): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#over) return reject(this.#over);
      this.#next.push(operation);
      this.#unsent.push({ resolve, reject });
      this.#flushSoon();
    });
  }

  #flushSoon(): void {
    if (this.#isFlushSoon) return;
    this.#isFlushSoon = true;
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#isFlushSoon = false;
    if (this.#next.length === 0) return;
    const operations = this.#next;
    this.#next = [];
    for (const waiter of this.#unsent.splice(0)) this.#sent.push(waiter);
    this.#thread.ref();
    this.#thread.postMessage({ operations, nowMs: this.#wallMs() }, transfersOf(operations));
  }

  #heard(message: FromThread): void {
    if (message.kind === 'failed') return this.#fail(message.cause);
    if (message.kind === 'refused') return this.#refused(readError(Buffer.from(message.error)));
    this.opened.resolve();
    const { answers, changes, isFull, hasSpare, expiries = this.#expiries, problems } = message;
    for (const problem of problems) this.#onProblem(readError(Buffer.from(problem)));
    for (const change of changes) this.#bounds.change(change);
    if (isFull && !this.#isFull) this.#onProblem(diskFull());
    this.#isFull = isFull;
    this.#expiries = expiries;
    const isFreed = changes.some(({ bytes }) => bytes < 0);
    if (isFreed) this.#bounds.wake();
    if (isFull || hasSpare || isFreed) this.#tidySoon();
    this.#sent.splice(0, answers.length).forEach((waiter, at) => {
      const answer = answers[at] as Answer;
      if (answer.kind === 'full') waiter.reject(diskFull());
      else waiter.resolve(answer);
    });
    if (this.#sent.length === 0 && !this.#over) this.#thread.unref();
  }

  /** The thread could not open the log, and ends. */
  #refused(error: HostError): void {
    this.#over = error;
    if (error.details.reason === 'store_failed') failedFolders.add(this.#folder);
    this.opened.reject(error);
  }

  #fail(cause: string): void {
    if (this.#over?.details.reason === 'store_failed') return;
    this.#over = logFailed(cause, 'not_executed');
    this.#thread.unref();
    this.#cancelTidy?.();
    this.#cancelSweep();
    failedFolders.add(this.#folder);
    this.#onProblem(this.#over);
    this.opened.reject(this.#over);
    for (const waiter of this.#sent.splice(0)) waiter.reject(logFailed(cause, 'uncertain'));
    for (const waiter of this.#unsent.splice(0)) waiter.reject(this.#over);
    this.#next = [];
    this.#bounds.close(this.#over);
    this.#ended.resolve();
  }

  async #finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    const { state, reply, isCallersKey } = outcome;
    const answer = await this.#ask({ op: 'finish', ...id, owner, state, isCallersKey, reply: ownMemory(reply) });
    if (answer.kind !== 'done') return foundIn(answer);
    return { state, owner, digest: '', attempts: 1, version: 0, reply };
  }

  #tidySoon(): void {
    if (this.#over) return;
    this.#cancelTidy ??= this.#clock.at(this.#clock.nowMs() + tidyMs, () => {
      this.#cancelTidy = undefined;
      this.#tidy(false);
    });
  }

  #tidy(isSweep: boolean): void {
    this.#next.push({ op: 'tidy', isSweep });
    this.#flushSoon();
  }

  /** Uses the expiry times of the last sweep. They lack rows that got their outcome later: each of these is kept for at least `keptMs`. */
  readonly #firstExpiryMs: FirstExpiry = (kind, worker) => {
    const known = this.#expiries?.[kind] ?? new Map<string, number>();
    const first = worker === undefined ? Math.min(...known.values()) : (known.get(worker) ?? never);
    return first === never ? keptMs[kind] : first - this.#wallMs();
  };

  /**
   * Wall time at the start plus monotonic time, so a change of the wall clock or a sleep of the machine expires no row: a worker on this
   * machine may still send its call again.
   */
  #wallMs(): number {
    return this.#wallOffsetMs + this.#clock.nowMs();
  }
}

const ownMemory = (reply: Buffer | undefined): Uint8Array | undefined => reply && new Uint8Array(reply);

const foundIn = (answer: Answer): CallRow | undefined => {
  if (answer.kind !== 'row') return undefined;
  const { reply } = answer.row;
  return { ...answer.row, reply: reply && Buffer.from(reply.buffer as ArrayBuffer, reply.byteOffset, reply.length) };
};

/** A user who can write to the folder can make the host believe that a call has run. */
function privateFolder(given: string): string {
  try {
    makeFolders(given);
  } catch (cause) {
    throw new HostError('invalid_spec', 'the folder of the log of calls cannot be created', {
      ...{ field: 'stateDir', reason: 'store_unusable', cause },
      hint: 'name a folder that Hostler may write to',
    });
  }
  requireTrusted(given);
  const folder = realpathSync(given);
  if (failedFolders.has(folder)) throw logFailed('it failed in this process before', 'not_executed');
  return folder;
}
