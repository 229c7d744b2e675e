/**
 * The store as the broker has it: asks a thread, which waits for the disk, so that nothing here ever does. What is asked within
 * one turn of the event loop goes there as one message.
 * Not here: what the thread does (store-thread.ts, mail-file.ts).
 *
 * Invariants: whoever waits is answered or refused, also when the thread ends; after a failure nothing is asked any more. What
 * waits is bounded by `waitingCount` and `waitingBytes`: past them new mail is refused, what ends something never is.
 */
import { mkdirSync, readFileSync, realpathSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';
import type { CallClaim, CallJournal, Claimed } from '../ports.js';
import type { DeadLetter, Mail, MailboxSize, MailStore, Put, StoreState } from '../store-port.js';
import type { Found } from './calls-table.js';
import { type FromThread, pack, type StoreThreadData, type ToThread, unpack } from './store-messages.js';
import { storeThreadStart } from './store-thread-start.js';
import {
  type Answer,
  closedError,
  errorOf,
  failedError,
  inUse,
  isAnswered,
  type Operation,
  type StoreEvents,
  type StoreLimits,
  storeLimits,
} from './store-words.js';

/** How often keys whose time is over are looked for: as many are forgotten at a time as come in a second. */
const tidyMs = 1_000;
/** How often room is looked for on a full disk. */
const roomMs = 250;

export interface BrokerStoreOptions extends Partial<StoreEvents> {
  readonly folder: string;
  readonly clock: Clock;
  readonly limits?: Partial<StoreLimits>;
}

export interface BrokerStore {
  readonly mail: MailStore;
  readonly journal: CallJournal;
  close(): Promise<void>;
}

/** Folders whose store is open here, or failed here; the latter are not opened again by this process. */
const taken = new Map<string, 'open' | 'failed'>();

/** Rejects with a HostError: `in_use` when another process, or this one, has the folder. */
export async function openBrokerStore(options: BrokerStoreOptions): Promise<BrokerStore> {
  const folder = makeFolder(options.folder);
  if (taken.get(folder) === 'failed') throw failedError('it failed in this process before', 'not_executed');
  if (taken.has(folder)) throw inUse(undefined);
  taken.set(folder, 'open');
  const asker = new StoreAsker(folder, options);
  try {
    await asker.opened;
  } catch (error) {
    if ((error as HostError).details.reason === 'store_failed') taken.set(folder, 'failed');
    else taken.delete(folder);
    throw error;
  }
  return { mail: mailOf(asker), journal: journalOf(asker), close: () => asker.close() };
}

interface Waiting {
  readonly answered: (answer: Answer) => void;
  readonly refused: (error: HostError) => void;
  readonly bytes: number;
}

class StoreAsker {
  readonly opened: Promise<void>;
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #limits: StoreLimits;
  readonly #events: Partial<StoreEvents>;
  readonly #thread: Worker;
  readonly #ended: Promise<void>;
  #state: StoreState = 'open';
  #failure: string | undefined;
  beganAtMs: number | undefined;
  #isClosed = false;
  #closing: Promise<void> | undefined;
  #asked: Operation[] = [];
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #cancelTidy: Cancel = () => {};

  constructor(folder: string, { clock, limits, onProblem, onState }: BrokerStoreOptions) {
    this.#folder = folder;
    this.#clock = clock;
    this.#limits = { ...storeLimits, ...limits };
    this.#events = { ...(onProblem && { onProblem }), ...(onState && { onState }) };
    const nowMs = clock.date().getTime();
    const owner = {
      pid: process.pid,
      startedAt: new Date(nowMs - process.uptime() * 1_000).toISOString(),
      bootId: bootIdOf(),
    };
    const workerData: StoreThreadData = { folder, limits: this.#limits, nowMs, owner };
    // The rest of the environment is none of its business, and none of its flags are meant for it.
    const { script, isCode } = storeThreadStart();
    this.#thread = new Worker(script, { eval: isCode, workerData, env: {}, execArgv: [] });
    this.opened = new Promise((resolve, reject) => {
      this.#thread.on('message', (words: FromThread) => {
        this.#heard(words, resolve, reject);
      });
      this.#thread.once('error', (error) => {
        reject(failedError(error.message, 'not_executed'));
        this.#failed(error.message);
      });
    });
    this.#ended = new Promise((resolve) => {
      this.#thread.once('exit', () => {
        if (!this.#isClosed) this.#failed('its thread ended');
        resolve();
      });
    });
  }

  get state(): StoreState {
    return this.#state;
  }

  /** Resolves with the answer, or rejects with why there is none. */
  ask(operation: Operation, bytes = 0): Promise<Answer> {
    return new Promise((answered, refused) => {
      if (this.#state === 'failed' || this.#isClosed) return refused(this.#gone('not_executed'));
      const { waitingCount, waitingBytes } = this.#limits;
      const isTooMuch = this.#waiting.length >= waitingCount || this.#waitingBytes + bytes > waitingBytes;
      // A reply that was worked for is taken in any case: as many wait as calls run.
      if (isTooMuch && operation.op !== 'finish') return refused(storeBusy(waitingCount, waitingBytes));
      if (this.#waiting.length === 0) this.#thread.ref();
      this.#waiting.push({ answered, refused, bytes });
      this.#waitingBytes += bytes;
      this.tell(operation);
    });
  }

  /** As `ask`, when nobody waits. */
  tell(operation: Operation): void {
    if (this.#state === 'failed' || this.#isClosed) return;
    this.#asked.push(operation);
    if (this.#asked.length === 1) setImmediate(() => this.#send());
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#send();
    this.#isClosed = true;
    this.#cancelTidy();
    this.#thread.ref();
    this.#post({ close: true });
    await this.#ended;
    if (this.#state !== 'failed') taken.delete(this.#folder);
  }

  #send(): void {
    const operations = this.#asked;
    if (operations.length === 0 || this.#state === 'failed') return;
    this.#asked = [];
    const { items, bytes } = pack(operations);
    this.#post({ items, bytes, nowMs: this.#clock.date().getTime() }, bytes);
  }

  #post(words: ToThread, bytes?: Uint8Array): void {
    this.#thread.postMessage(words, bytes ? [bytes.buffer as ArrayBuffer] : []);
  }

  #heard(words: FromThread, resolve: () => void, reject: (error: HostError) => void): void {
    for (const problem of words.problems) this.#events.onProblem?.(errorOf(problem));
    switch (words.kind) {
      case 'opened':
        this.#thread.unref();
        this.beganAtMs = words.beganAtMs;
        this.#became(words.state);
        this.#tidyLater();
        return resolve();
      case 'refused':
        this.#isClosed = true;
        return reject(errorOf(words.refusal));
      case 'failed':
        return this.#failed(words.cause);
      case 'answered':
        this.#became(words.state);
        return this.#settle(unpack(words.answers));
      default:
        return words satisfies never;
    }
  }

  #settle(answers: readonly Answer[]): void {
    const settled = this.#waiting.splice(0, answers.length);
    if (this.#waiting.length === 0 && !this.#isClosed) this.#thread.unref();
    settled.forEach(({ answered, refused, bytes }, at) => {
      this.#waitingBytes -= bytes;
      const answer = answers[at] as Answer;
      if ('refused' in answer) refused(errorOf(answer));
      else answered(answer);
    });
  }

  #became(state: StoreState): void {
    if (state === this.#state) return;
    this.#state = state;
    if (state !== 'failed' && !this.#isClosed) this.#tidyLater();
    this.#events.onState?.(state);
  }

  #failed(cause: string): void {
    if (this.#state === 'failed') return;
    this.#failure = cause;
    taken.set(this.#folder, 'failed');
    this.#cancelTidy();
    // The thread keeps the lock until the process ends, and the process need not stay for it.
    this.#thread.unref();
    this.#became('failed');
    const waiting = this.#waiting;
    // What was not yet handed to the thread is surely not held.
    const unsent = this.#asked.filter(isAnswered).length;
    this.#waiting = [];
    this.#asked = [];
    this.#waitingBytes = 0;
    waiting.forEach(({ refused }, at) => {
      refused(this.#gone(at < waiting.length - unsent ? 'uncertain' : 'not_executed'));
    });
  }

  #gone(execution: 'uncertain' | 'not_executed'): HostError {
    return this.#failure === undefined ? closedError() : failedError(this.#failure, execution);
  }

  #tidyLater(): void {
    this.#cancelTidy();
    const delayMs = this.#state === 'full' ? roomMs : tidyMs;
    this.#cancelTidy = this.#clock.at(this.#clock.nowMs() + delayMs, () => {
      this.tell({ op: 'tidy' });
      this.#tidyLater();
    });
  }
}

function mailOf(asker: StoreAsker): MailStore {
  const ask = <T>(operation: Operation, bytes?: number) => asker.ask(operation, bytes) as Promise<T>;
  return {
    get state() {
      return asker.state;
    },
    beganAtMs: asker.beganAtMs,
    sizes: async () => (await ask<{ sizes: MailboxSize[] }>({ op: 'sizes' })).sizes,
    put: (mail, answers) => ask<Put>({ op: 'put', mail, answers }, mail.body.length),
    read: async (mailbox, afterSeq, { count, bytes }) =>
      (await ask<{ mails: Mail[] }>({ op: 'read', mailbox, afterSeq, count, bytes })).mails,
    find: async (to, sender, id) => (await ask<{ mails: Mail[] }>({ op: 'request', to, sender, id })).mails[0],
    handedOut: (seq) => asker.tell({ op: 'handedOut', seq }),
    remove: (seq) => asker.tell({ op: 'remove', seq }),
    bury: (seq, reasons) => asker.tell({ op: 'bury', seq, reasons }),
    deadLetters: async () => (await ask<{ deadLetters: DeadLetter[] }>({ op: 'deadLetters' })).deadLetters,
    revive: async (seq) => (await ask<{ revived: Mail | undefined }>({ op: 'revive', seq })).revived,
    dropDead: async (seq) => (await ask<{ isDropped: boolean }>({ op: 'dropDead', seq })).isDropped,
    flush: async () => void (await asker.ask({ op: 'flush' })),
    close: () => asker.close(),
  };
}

const journalOf = (asker: StoreAsker): CallJournal => ({
  claim: async (claim: CallClaim) => ((await asker.ask({ op: 'claim', claim })) as { claimed: Claimed }).claimed,
  async find(mailbox, key, about) {
    const answer = await asker.ask({ op: 'find', mailbox, key, firstSentAt: about?.firstSentAt });
    return 'claimed' in answer ? (answer.claimed as Found) : undefined;
  },
  finish: async (mailbox, key, reply) => void (await asker.ask({ op: 'finish', mailbox, key, reply }, reply.length)),
});

const storeBusy = (limit: number, bytes: number): HostError =>
  new HostError('overloaded', `the broker's store is busy: ${limit} operations or ${bytes} bytes wait for its disk`, {
    reason: 'store_busy',
    execution: 'not_executed',
    limit,
    hint: 'send less at a time',
  });

/** Its own folder, for it alone: what stands in it runs tools. */
function makeFolder(folder: string): string {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new HostError('invalid_spec', 'the folder of the broker cannot be made', {
      field: 'stateDir',
      reason: 'store_unusable',
      hint: 'give a folder that Hostler may write to',
      cause,
    });
  }
  requireTrusted(folder);
  return realpathSync(folder);
}

function bootIdOf(): string | undefined {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return undefined;
  }
}
