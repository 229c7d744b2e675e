/**
 * The log of calls of one host: a SQLite file, written by a thread so that the event loop never waits for the disk. All operations of
 * one turn of the event loop are one message and one transaction.
 * Not here: the thread (log-thread.ts), the bounds (call-bounds.ts).
 *
 * Invariants: every promise settles, also when the thread ends. After a failure nothing is written. A start of the process has
 * a new store id, which is its owner id too: every earlier owner is gone.
 */
import { mkdirSync, realpathSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { Cancel, Clock } from '../../../kernel/clock.js';
import { HostError, isHostError } from '../../../kernel/errors.js';
import { newId } from '../../../kernel/random.js';
import { requireTrusted } from '../../../transports/stdio/state-dir.js';
import { brokerLimits } from '../../protocol/limits.js';
import { errorBody } from '../../protocol/reply-body.js';
import { CallBounds, noRoom } from '../call-bounds.js';
import type { CallId, CallLog, CallOutcome, CallRow, LogUsage, NewCall, Received } from '../call-log.js';
import { diskFull, inUse, logClosed, logFailed } from './log-errors.js';
import {
  type Answer,
  type Answered,
  type FromThread,
  fromPlain,
  type LogState,
  type Operation,
  pack,
  type ThreadData,
  type ThreadRow,
  type ToThread,
  unpack,
} from './log-messages.js';
import { logThreadStart } from './log-thread-start.js';

/** How often free pages are returned to the disk, and room is looked for on a full one. */
const tidyMs = 250;
/** How often expired rows are removed. */
const sweepMs = 30_000;

export interface SqliteCallLogOptions {
  readonly folder: string;
  readonly clock: Clock;
  readonly onProblem?: (error: HostError) => void;
}

/** Folders whose log is open in this process. One that failed is not opened again: only a restart discards the kernel's pages. */
const openFolders = new Map<string, 'open' | 'failed'>();

/** Rejects with a HostError: `in_use` when another log has the folder. */
export async function openSqliteCallLog(options: SqliteCallLogOptions): Promise<CallLog> {
  const folder = makeFolder(options.folder);
  if (openFolders.get(folder) === 'failed') throw logFailed('it failed in this process before', 'not_executed');
  if (openFolders.has(folder)) throw inUse();
  openFolders.set(folder, 'open');
  const log = new SqliteCallLog(folder, options);
  try {
    await log.opened;
  } catch (error) {
    if (isHostError(error) && error.details.reason === 'store_failed') openFolders.set(folder, 'failed');
    else openFolders.delete(folder);
    throw error;
  }
  return log;
}

interface Waiting {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: HostError) => void;
}

class SqliteCallLog implements CallLog {
  readonly storeId = newId();
  readonly owner = this.storeId;
  readonly opened: Promise<void>;
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #onProblem: (error: HostError) => void;
  readonly #bounds = new CallBounds();
  readonly #thread: Worker;
  readonly #exited: Promise<void>;
  #state: LogState = 'open';
  #failure = '';
  #closing: Promise<void> | undefined;
  /** Operations of this turn of the event loop. */
  #turn: Operation[] = [];
  #unsent = 0;
  /** Taken calls are removed with the next operation, so that they cost no sync of their own. */
  #taken: Operation[] = [];
  #waiting: Waiting[] = [];
  /** Replies that wait for room. */
  readonly #forRoom = new Set<() => void>();
  #forRoomBytes = 0;
  #cancelTidy: Cancel = () => {};
  #tidyAtMs = Number.POSITIVE_INFINITY;
  #sweepAtMs: number;

  constructor(folder: string, { clock, onProblem = () => {} }: SqliteCallLogOptions) {
    this.#folder = folder;
    this.#clock = clock;
    this.#onProblem = onProblem;
    this.#sweepAtMs = clock.nowMs();
    const startedAt = new Date(clock.date().getTime() - process.uptime() * 1_000).toISOString();
    const workerData: ThreadData = { folder, owner: this.owner, holder: { pid: process.pid, startedAt } };
    const { script, isCode } = logThreadStart();
    // Neither secrets of the environment nor flags of this process are meant for the thread.
    this.#thread = new Worker(script, { eval: isCode, workerData, env: {}, execArgv: [] });
    this.opened = new Promise((resolve, reject) => {
      this.#thread.on('message', (message: FromThread) => this.#heard(message, resolve, reject));
      this.#thread.once('error', (error) => {
        reject(logFailed(error.message, 'not_executed'));
        this.#failed(error.message);
      });
    });
    this.#exited = new Promise((resolve) => {
      this.#thread.once('exit', () => {
        if (this.#closing === undefined) this.#failed('its thread ended');
        resolve();
      });
    });
  }

  refusal(worker: string, _epoch: string, isCallersKey: boolean): HostError | undefined {
    if (this.#state === 'failed' || this.#closing !== undefined) return this.#gone('not_executed');
    if (this.#state === 'full') return diskFull();
    return this.#bounds.refusal(worker, isCallersKey, this.#forRoomBytes);
  }

  async receive({ id, digest, isCallersKey, deadlineMs, state, reply }: NewCall): Promise<Received> {
    const expires = this.#wallMs() + (isCallersKey ? brokerLimits.callersKeyMs : deadlineMs + brokerLimits.untakenMs);
    const { worker } = id;
    // Counted before the answer: many calls may come in one turn.
    const row = { worker, isCallersKey, open: 1, finished: 0, bytes: 0 };
    this.#bounds.change(row);
    const operation: Operation = { op: 'receive', ...id, state, digest, isCallersKey, expires, reply };
    const answer = await this.#ask(operation).finally(() => this.#bounds.change({ ...row, open: -1 }));
    if (answer.kind === 'row') return { isNew: false, row: rowOf(answer.row) };
    const attempts = state === 'running' ? 1 : 0;
    return { isNew: true, row: { state, owner: this.owner, digest, attempts, version: versionOf(answer), reply } };
  }

  async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const answer = await this.#ask({ op: 'begin', ...id, version });
    return answer.kind === 'done' ? 'begun' : foundIn(answer);
  }

  async finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    const { reply, isCallersKey, deadlineMs, state } = outcome;
    const deadlineAtMs = this.#clock.nowMs() + deadlineMs;
    do {
      if (isCallersKey || this.#bounds.hasRoom(id.worker, reply.length)) {
        try {
          return await this.#finish(id, owner, state, reply, isCallersKey);
        } catch (error) {
          if (!isHostError(error) || error.details.reason !== 'disk_full') throw error;
        }
      }
      await this.#room(reply.length, deadlineAtMs);
    } while (this.#clock.nowMs() < deadlineAtMs);
    return this.#finish(id, owner, 'uncertain', errorBody(noRoom(reply.length)), isCallersKey);
  }

  async find(id: CallId): Promise<CallRow | undefined> {
    return foundIn(await this.#ask({ op: 'find', ...id }));
  }

  taken(id: CallId): void {
    this.#taken.push({ op: 'taken', ...id });
    // Replies that wait for room, and large batches, do not wait for other work.
    if (this.#forRoom.size > 0 || this.#taken.length >= brokerLimits.keysPerMessage) this.#later();
    else this.#tidyIn(tidyMs);
  }

  async purge(worker: string, except: readonly string[] = []): Promise<void> {
    await this.#ask({ op: 'purge', worker, except });
  }

  async isGone(owner: string): Promise<boolean> {
    return owner !== this.owner;
  }

  usage(): LogUsage {
    return this.#bounds.usage();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#cancelTidy();
    for (const wake of this.#forRoom) wake();
    // The thread keeps the lock of a failed log until the process ends.
    if (this.#state === 'failed') return;
    this.#send();
    this.#thread.ref();
    this.#post({ close: true });
    await this.#exited;
    for (const { reject } of this.#waiting) reject(this.#gone('uncertain'));
    if (openFolders.get(this.#folder) === 'open') openFolders.delete(this.#folder);
  }

  async #finish(
    id: CallId,
    owner: string,
    state: CallOutcome['state'],
    reply: Buffer,
    isCallersKey: boolean,
  ): Promise<CallRow | undefined> {
    const bytes = { worker: id.worker, isCallersKey, open: 0, finished: 0, bytes: reply.length };
    this.#bounds.change(bytes);
    const answer = await this.#ask({ op: 'finish', ...id, owner, state, reply }).finally(() =>
      this.#bounds.change({ ...bytes, bytes: -reply.length }),
    );
    if (answer.kind !== 'done') return foundIn(answer);
    const { version, hasReply, digest = '' } = answer;
    return { state, owner, digest, attempts: 1, version, reply: hasReply ? reply : undefined };
  }

  /** Resolves when rows were removed, after a while on a full disk, and at the deadline. */
  async #room(bytes: number, deadlineAtMs: number): Promise<void> {
    if (this.#closing !== undefined || this.#state === 'failed') throw this.#gone('uncertain');
    const atMs = Math.min(
      deadlineAtMs,
      this.#clock.nowMs() + (this.#state === 'full' ? tidyMs : Number.POSITIVE_INFINITY),
    );
    this.#forRoomBytes += bytes;
    if (this.#taken.length > 0) this.#later();
    await new Promise<void>((resolve) => {
      const wake = () => {
        cancel();
        this.#forRoom.delete(wake);
        resolve();
      };
      const cancel = this.#clock.at(atMs, wake);
      this.#forRoom.add(wake);
    });
    this.#forRoomBytes -= bytes;
  }

  #ask(operation: Operation): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#state === 'failed' || this.#closing !== undefined) return reject(this.#gone('not_executed'));
      if (this.#waiting.length === 0) this.#thread.ref();
      this.#waiting.push({ resolve, reject });
      this.#unsent++;
      this.#turn.push(operation);
      if (this.#turn.length === 1) this.#later();
    });
  }

  #later(): void {
    setImmediate(() => this.#send());
  }

  #send(): void {
    if (this.#state === 'failed' || (this.#turn.length === 0 && this.#taken.length === 0)) return;
    // Taken first: they free room for the others.
    const operations = [...this.#taken, ...this.#turn];
    this.#turn = [];
    this.#taken = [];
    this.#unsent = 0;
    const bytes = pack(operations);
    this.#post({ operations, bytes, nowMs: this.#wallMs() }, bytes);
  }

  #post(message: ToThread, bytes?: Uint8Array): void {
    this.#thread.postMessage(message, bytes ? [bytes.buffer as ArrayBuffer] : []);
  }

  #heard(message: FromThread, resolve: () => void, reject: (error: HostError) => void): void {
    switch (message.kind) {
      case 'opened':
        for (const problem of message.problems) this.#onProblem(fromPlain(problem));
        for (const change of message.changes) this.#bounds.change(change);
        this.#thread.unref();
        this.#tidyIn(0);
        return resolve();
      case 'refused':
        this.#closing = this.#exited;
        return reject(fromPlain(message.error));
      case 'failed':
        return this.#failed(message.cause);
      case 'answered':
        return this.#answered(message);
      default:
        return message satisfies never;
    }
  }

  #answered({ answers, bytes, changes, state, hasSpare, expireInMs, problems }: Answered): void {
    for (const problem of problems) this.#onProblem(fromPlain(problem));
    for (const change of changes) this.#bounds.change(change);
    if (expireInMs) this.#bounds.expireInMs = expireInMs;
    this.#became(state);
    if (hasSpare || state === 'full') this.#tidyIn(tidyMs);
    unpack(answers, bytes);
    const answered = this.#waiting.splice(0, answers.length);
    if (this.#waiting.length === 0 && this.#closing === undefined) this.#thread.unref();
    answered.forEach(({ resolve, reject }, at) => {
      const answer = answers[at] as Answer;
      if (answer.kind === 'error') reject(fromPlain(answer.error));
      else resolve(answer);
    });
    if (changes.some(({ bytes: freed }) => freed < 0)) for (const wake of [...this.#forRoom]) wake();
  }

  #became(state: LogState): void {
    if (state === this.#state) return;
    this.#state = state;
    if (state === 'full') this.#onProblem(diskFull());
  }

  #failed(cause: string): void {
    if (this.#state === 'failed') return;
    this.#state = 'failed';
    this.#failure = cause;
    openFolders.set(this.#folder, 'failed');
    this.#cancelTidy();
    this.#thread.unref();
    this.#onProblem(this.#gone('not_executed'));
    const waiting = this.#waiting;
    const sent = waiting.length - this.#unsent;
    [this.#waiting, this.#turn, this.#taken] = [[], [], []];
    // What the thread did not get was certainly not written.
    waiting.forEach(({ reject }, at) => {
      reject(this.#gone(at < sent ? 'uncertain' : 'not_executed'));
    });
    for (const wake of [...this.#forRoom]) wake();
  }

  #gone(execution: 'uncertain' | 'not_executed'): HostError {
    return this.#state === 'failed' ? logFailed(this.#failure, execution) : logClosed();
  }

  /** Sends what waits for no answer. */
  #tidyIn(delayMs: number): void {
    const atMs = this.#clock.nowMs() + delayMs;
    if (atMs >= this.#tidyAtMs || this.#closing !== undefined || this.#state === 'failed') return;
    this.#cancelTidy();
    this.#tidyAtMs = atMs;
    this.#cancelTidy = this.#clock.at(atMs, () => this.#tidy());
  }

  #tidy(): void {
    const nowMs = this.#clock.nowMs();
    const isSweep = nowMs >= this.#sweepAtMs;
    if (isSweep) this.#sweepAtMs = nowMs + sweepMs;
    this.#taken.push({ op: 'tidy', isSweep });
    this.#send();
    this.#tidyAtMs = Number.POSITIVE_INFINITY;
    this.#tidyIn(this.#sweepAtMs - nowMs);
  }

  #wallMs(): number {
    return this.#clock.date().getTime();
  }
}

const rowOf = ({ state, owner, digest, attempts, version, reply }: ThreadRow): CallRow => ({
  ...{ state, owner, digest, attempts, version },
  reply: reply as Buffer | undefined,
});

const foundIn = (answer: Answer): CallRow | undefined => (answer.kind === 'row' ? rowOf(answer.row) : undefined);

const versionOf = (answer: Answer): number => (answer.kind === 'done' ? answer.version : 0);

/** A private folder: a user who can write to it can make the host believe that a call has run. */
function makeFolder(folder: string): string {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new HostError('invalid_spec', 'the folder of the log of calls cannot be created', {
      ...{ field: 'stateDir', reason: 'store_unusable', cause },
      hint: 'name a folder that Hostler may write to',
    });
  }
  requireTrusted(folder);
  return realpathSync(folder);
}
