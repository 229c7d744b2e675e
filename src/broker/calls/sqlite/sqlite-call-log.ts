/**
 * The log of calls of one host: a SQLite file, written by a thread so that the event loop never waits for the disk.
 * Not here: the thread (log-client.ts, log-thread.ts), the bounds (call-bounds.ts).
 *
 * Invariant: a start of the process has a new store id, which is its owner id too, so every earlier owner is gone.
 */
import { mkdirSync, realpathSync } from 'node:fs';
import type { LogUsage } from '../../../host/broker-status.js';
import type { Cancel, Clock } from '../../../kernel/clock.js';
import { HostError, isHostError } from '../../../kernel/errors.js';
import { newId } from '../../../kernel/random.js';
import { requireTrusted } from '../../../transports/stdio/state-dir.js';
import { brokerLimits } from '../../protocol/limits.js';
import { errorBody } from '../../protocol/reply-body.js';
import { CallBounds, type FirstExpiry, keptMs, noRoom, notKept } from '../call-bounds.js';
import type { CallId, CallLog, CallOutcome, CallRow, NewCall, Received } from '../call-log.js';
import { LogClient } from './log-client.js';
import { diskFull, inUse, logFailed } from './log-errors.js';
import { type Answer, type Answered, asBuffer, type LogState, type ThreadRow } from './log-messages.js';

/** How often free pages are returned to the disk, and room is looked for on a full one. */
const tidyMs = 250;
/** How often expired rows are removed. */
const sweepMs = 30_000;
const never = Number.POSITIVE_INFINITY;

export interface SqliteCallLogOptions {
  /** Undefined: the rows are in memory, for a host without a state folder. */
  readonly folder: string | undefined;
  readonly clock: Clock;
  readonly onProblem?: (error: HostError) => void;
}

/** Folders whose log is open in this process. One that failed is not opened again: only a restart discards the kernel's pages. */
const openFolders = new Map<string, 'open' | 'failed'>();

/** Rejects with a HostError: `in_use` when another log has the folder. */
export async function openSqliteCallLog(options: SqliteCallLogOptions): Promise<CallLog> {
  const folder = options.folder === undefined ? undefined : claimFolder(options.folder);
  const log = new SqliteCallLog({ ...options, folder });
  try {
    await log.opened;
  } catch (error) {
    if (isHostError(error) && error.details.reason === 'store_failed') openFolders.set(folder ?? '', 'failed');
    else openFolders.delete(folder ?? '');
    throw error;
  }
  return log;
}

class SqliteCallLog implements CallLog {
  readonly storeId = newId();
  readonly owner = this.storeId;
  readonly opened: Promise<void>;
  readonly #folder: string | undefined;
  readonly #clock: Clock;
  readonly #onProblem: (error: HostError) => void;
  readonly #bounds: CallBounds;
  readonly #client: LogClient;
  #state: LogState = 'open';
  #expiries: Answered['expiries'];
  #closing: Promise<void> | undefined;
  #cancelTidy: Cancel = () => {};
  #tidyAtMs = never;
  #sweepAtMs: number;
  readonly #wallOffsetMs: number;

  constructor({ folder, clock, onProblem = () => {} }: SqliteCallLogOptions) {
    this.#folder = folder;
    this.#clock = clock;
    this.#onProblem = onProblem;
    this.#sweepAtMs = clock.nowMs();
    this.#bounds = new CallBounds(clock, this.#firstExpiryMs);
    this.#wallOffsetMs = clock.date().getTime() - clock.nowMs();
    const startedAt = new Date(this.#wallMs() - process.uptime() * 1_000).toISOString();
    this.#client = new LogClient({
      ...{ data: { folder, owner: this.owner, startedAt }, wallMs: () => this.#wallMs(), onProblem },
      onAnswered: (message) => this.#answered(message),
      onFailed: () => {
        if (folder !== undefined) openFolders.set(folder, 'failed');
        this.#cancelTidy();
        this.#bounds.wake();
      },
    });
    this.opened = this.#client.opened.then(() => this.#tidyIn(0));
  }

  refusal(worker: string, isCallersKey: boolean): HostError | undefined {
    const gone = this.#client.gone('not_executed');
    if (gone || this.#state === 'full') return gone ?? diskFull();
    return this.#bounds.refusal(worker, isCallersKey);
  }

  async receive({ id, digest, isCallersKey, deadlineMs, state, reply }: NewCall): Promise<Received> {
    const expires = this.#wallMs() + (isCallersKey ? brokerLimits.callersKeyMs : deadlineMs + brokerLimits.unackedMs);
    // Counted before the answer: many calls may come in one turn.
    const row = { worker: id.worker, isCallersKey, open: 1, finished: 0, bytes: 0 };
    this.#bounds.change(row);
    const operation = { op: 'receive', ...id, state, digest, isCallersKey, expires, reply: ownMemory(reply) } as const;
    const answer = await this.#client.ask(operation).finally(() => this.#bounds.change({ ...row, open: -1 }));
    if (answer.kind === 'row') return { isNew: false, row: rowOf(answer.row) };
    const attempts = state === 'running' ? 1 : 0;
    return { isNew: true, row: { state, owner: this.owner, digest, attempts, version: 1, reply } };
  }

  async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const answer = await this.#client.ask({ op: 'begin', ...id, version });
    return answer.kind === 'done' ? 'begun' : foundIn(answer);
  }

  async finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    const { reply, isCallersKey, deadlineMs } = outcome;
    const deadlineAtMs = this.#clock.nowMs() + deadlineMs;
    do {
      const hasRoom = this.#bounds.hasRoom(id.worker, reply.length, isCallersKey);
      if (hasRoom || isCallersKey) {
        try {
          const kept = hasRoom ? outcome : { ...outcome, reply: errorBody(notKept(reply.length)) };
          return withReply(await this.#finish(id, owner, kept), kept.reply, reply);
        } catch (error) {
          if (!isHostError(error) || error.details.reason !== 'disk_full') throw error;
        }
      }
      await this.#room(id.worker, reply.length, deadlineAtMs);
    } while (this.#clock.nowMs() < deadlineAtMs);
    return this.#finish(id, owner, { ...outcome, state: 'uncertain', reply: errorBody(noRoom(reply.length)) });
  }

  async find(id: CallId): Promise<CallRow | undefined> {
    return foundIn(await this.#client.ask({ op: 'find', ...id }));
  }

  acknowledge(id: CallId): void {
    const waiting = this.#client.enqueue({ op: 'ack', ...id });
    // Replies that wait for room, and large batches, do not wait for other work.
    this.#tidyIn(this.#bounds.isWaiting || waiting >= brokerLimits.keysPerMessage ? 0 : tidyMs);
  }

  async purge(worker: string, except: readonly string[] = []): Promise<void> {
    await this.#client.ask({ op: 'purge', worker, except });
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
    const closed = this.#client.close();
    this.#bounds.wake();
    await closed;
    if (this.#folder !== undefined && openFolders.get(this.#folder) === 'open') openFolders.delete(this.#folder);
  }

  async #finish(id: CallId, owner: string, { state, reply, isCallersKey }: CallOutcome): Promise<CallRow | undefined> {
    const bytes = { worker: id.worker, isCallersKey, open: 0, finished: 0, bytes: reply.length };
    this.#bounds.change(bytes);
    const answer = await this.#client
      .ask({ op: 'finish', ...id, owner, state, reply: ownMemory(reply), isCallersKey })
      .finally(() => this.#bounds.change({ ...bytes, bytes: -reply.length }));
    if (answer.kind !== 'done') return foundIn(answer);
    return { state, owner, digest: '', attempts: 1, version: 0, reply };
  }

  /** Resolves when rows were removed, after a while on a full disk, and at the deadline. */
  async #room(worker: string, bytes: number, deadlineAtMs: number): Promise<void> {
    const gone = this.#client.gone('uncertain');
    if (gone) throw gone;
    const retryAtMs = this.#state === 'full' ? this.#clock.nowMs() + tidyMs : never;
    this.#tidyIn(0);
    await this.#bounds.room(worker, bytes, Math.min(deadlineAtMs, retryAtMs));
  }

  #answered({ changes, state = 'open', hasSpare, expiries }: Pick<Answered, 'changes'> & Partial<Answered>): void {
    for (const change of changes) this.#bounds.change(change);
    if (expiries) this.#expiries = expiries;
    if (state === 'full' && this.#state !== 'full') this.#onProblem(diskFull());
    this.#state = state;
    if (hasSpare || state === 'full') this.#tidyIn(tidyMs);
    if (changes.some(({ bytes }) => bytes < 0)) this.#bounds.wake();
  }

  /** Sends what waits for no answer, and lets the thread tidy up. */
  #tidyIn(delayMs: number): void {
    const atMs = this.#clock.nowMs() + delayMs;
    if (atMs >= this.#tidyAtMs || this.#client.gone('uncertain')) return;
    this.#cancelTidy();
    this.#tidyAtMs = atMs;
    if (delayMs > 0) this.#cancelTidy = this.#clock.at(atMs, () => this.#tidy());
    else setImmediate(() => this.#tidy());
  }

  #tidy(): void {
    const nowMs = this.#clock.nowMs();
    this.#tidyAtMs = never;
    if (this.#client.gone('uncertain')) return;
    const isSweep = nowMs >= this.#sweepAtMs;
    if (isSweep) this.#sweepAtMs = nowMs + sweepMs;
    this.#client.enqueue({ op: 'tidy', isSweep });
    this.#client.flush();
    this.#tidyIn(this.#sweepAtMs - nowMs);
  }

  /** As of the last sweep: rows that got their outcome since then have at least their usual time. */
  readonly #firstExpiryMs: FirstExpiry = (kind, worker) => {
    const known = this.#expiries?.[kind] ?? new Map<string, number>();
    const first = worker === undefined ? Math.min(...known.values()) : (known.get(worker) ?? never);
    return first === never ? keptMs[kind] : first - this.#wallMs();
  };

  /** Does not jump with the wall clock, nor with sleep of the machine: a worker on it may still send a call again. */
  #wallMs(): number {
    return this.#wallOffsetMs + this.#clock.nowMs();
  }
}

const ownMemory = (reply: Buffer | undefined): Uint8Array | undefined => reply && new Uint8Array(reply);

/** The caller that waits gets the reply, also if another one was recorded for lack of room. */
const withReply = (row: CallRow | undefined, kept: Buffer, reply: Buffer): CallRow | undefined =>
  row?.reply === kept ? { ...row, reply } : row;

const rowOf = (row: ThreadRow): CallRow => ({ ...row, reply: asBuffer(row.reply) });

const foundIn = (answer: Answer): CallRow | undefined => (answer.kind === 'row' ? rowOf(answer.row) : undefined);

/** A private folder: a user who can write to it can make the host believe that a call has run. */
function claimFolder(given: string): string {
  try {
    mkdirSync(given, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new HostError('invalid_spec', 'the folder of the log of calls cannot be created', {
      ...{ field: 'stateDir', reason: 'store_unusable', cause },
      hint: 'name a folder that Hostler may write to',
    });
  }
  requireTrusted(given);
  const folder = realpathSync(given);
  const state = openFolders.get(folder);
  if (state !== undefined)
    throw state === 'open' ? inUse() : logFailed('it failed in this process before', 'not_executed');
  openFolders.set(folder, 'open');
  return folder;
}
