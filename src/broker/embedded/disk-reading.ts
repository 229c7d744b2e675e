/**
 * What of a mailbox is in memory: all of it is read from the disk, in pages, when somebody is there to take it or it must be
 * known whose it is; it is forgotten when nobody is. Bodies that found no room in memory are read when it is their turn.
 * Not here: what is handed out, counted and dropped (postbox.ts).
 *
 * Invariants: what was put while the disk was read is found or added, and never both; a reading that was given up adds nothing
 * any more; without a reader no body is in memory.
 */
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import type { Mail, MailStore } from '../store-port.js';
import type { HeldIds } from './held-ids.js';
import type { KeptBodies } from './kept-bodies.js';
import type { BrokerLimits } from './limits.js';
import { type Entry, entryOf, type Mailbox } from './mailbox.js';

export interface DiskReadingParts {
  readonly name: string;
  readonly store: MailStore;
  readonly clock: Clock;
  readonly limits: BrokerLimits;
  readonly mailbox: Mailbox;
  readonly kept: KeptBodies;
  readonly ids: HeldIds;
  /** Somebody is there to take it. */
  isWanted(): boolean;
  /** There is more to hand out, or to look at. */
  progressed(): void;
  /** Everything was read: so many, and so large. */
  counted(count: number, bytes: number): void;
  /** Whether whoever sent it does not want it any more. */
  isCancelled(mail: Mail): boolean;
  /** Cancelled, and in nobody's hands so far. It is not in the mailbox. */
  foundCancelled(entry: Entry): void;
  /** Handed out too often before this process began. It is not in the mailbox. */
  foundDead(entry: Entry): void;
  /** Its body is not on the disk (any more). It was taken out of the mailbox. */
  unreadable(entry: Entry): void;
  problem(error: HostError): void;
}

const readAgainMs = 1_000;

export class DiskReading {
  readonly #parts: DiskReadingParts;
  /** Up to here the disk was read; what is put above it is added as it comes, once all was read. */
  #readThrough = 0;
  #reading: Promise<void> | undefined;
  #isLoaded: boolean;
  #cameMeanwhile = false;
  #unloads = 0;
  #isFetching = false;

  constructor(isEmpty: boolean, parts: DiskReadingParts) {
    this.#isLoaded = isEmpty;
    this.#parts = parts;
  }

  /** Everything on disk is in the mailbox, bodies aside. */
  get isLoaded(): boolean {
    return this.#isLoaded;
  }
  get isReading(): boolean {
    return this.#reading !== undefined;
  }
  /** A body is on its way, of what is next. */
  get isFetching(): boolean {
    return this.#isFetching;
  }

  /** Rejects when the disk cannot be read now, which was told. */
  load(): Promise<void> {
    this.#reading ??= this.#readAll().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  /** As often as it takes, while it is wanted. */
  keepLoading(): void {
    const { clock, isWanted } = this.#parts;
    this.load().catch(() => {
      clock.at(clock.nowMs() + readAgainMs, () => {
        if (isWanted() && !this.#isLoaded) this.keepLoading();
      });
    });
  }

  /** Whether what was put under that number must be added: if not, the reading finds it, or found it already. */
  isAbove(seq: number): boolean {
    if (!this.#isLoaded) this.#cameMeanwhile = true;
    return this.#isLoaded && seq > this.#readThrough;
  }

  /** What was never handed out is only on disk from now on. What was, is remembered with its reasons. */
  unload(): void {
    const { mailbox, ids } = this.#parts;
    this.#isLoaded = false;
    this.#readThrough = 0;
    this.#unloads++;
    this.dropBodies();
    for (const entry of [...mailbox.entries()]) if (entry.deliveries === 0) mailbox.forget(entry);
    ids.clear();
  }

  dropBodies(): void {
    const { mailbox, kept } = this.#parts;
    for (const entry of mailbox.entries()) kept.drop(entry);
  }

  /** Bodies are read in pages: who waits behind is wanted next, as often as not. */
  fetch(entry: Entry): void {
    const { name, store, clock, limits, progressed } = this.#parts;
    this.#isFetching = true;
    store.read(name, entry.seq - 1, limits.page).then(
      (page) => {
        this.#isFetching = false;
        this.#fetched(entry, page);
        progressed();
      },
      (error: unknown) => {
        this.#problem(error);
        clock.at(clock.nowMs() + readAgainMs, () => {
          this.#isFetching = false;
          progressed();
        });
      },
    );
  }

  async #readAll(): Promise<void> {
    const { name, store, limits, progressed } = this.#parts;
    while (!this.#isLoaded) {
      this.#cameMeanwhile = false;
      const unloads = this.#unloads;
      let page: readonly Mail[];
      try {
        page = await store.read(name, this.#readThrough, limits.page);
      } catch (error) {
        this.#problem(error);
        throw error;
      }
      // It was given up meanwhile, and begins again.
      if (unloads !== this.#unloads) continue;
      for (const mail of page) this.#found(mail);
      this.#readThrough = page.at(-1)?.seq ?? this.#readThrough;
      this.#isLoaded = page.length === 0 && !this.#cameMeanwhile;
      progressed();
    }
    this.#count();
  }

  #found(mail: Mail): void {
    const { limits, mailbox, kept, ids, isWanted, isCancelled, foundCancelled, foundDead } = this.#parts;
    ids.add(mail.from.mailbox, mail.kind, mail.id, mail.body.length);
    if (mailbox.get(mail.seq)) return;
    const entry = entryOf(mail);
    if (entry.deliveries >= limits.deliveries) {
      entry.reasons.push(`handed out ${entry.deliveries} times before the broker started again`);
      return foundDead(entry);
    }
    entry.isCancelled = mail.kind === 'request' && isCancelled(mail);
    if (entry.isCancelled && entry.deliveries === 0) return foundCancelled(entry);
    if (isWanted()) kept.keep(entry, mail.body);
    mailbox.add(entry);
  }

  /** What the disk turned out not to hold (any more) is not counted. */
  #count(): void {
    const { mailbox, counted } = this.#parts;
    let bytes = 0;
    for (const entry of mailbox.entries()) bytes += entry.bytes;
    counted(mailbox.size, bytes);
  }

  #fetched(entry: Entry, page: readonly Mail[]): void {
    const { mailbox, kept, isWanted, unreadable } = this.#parts;
    for (const { seq, body } of isWanted() ? page : []) {
      const found = mailbox.get(seq);
      if (found === entry) found.body ??= body;
      else if (found?.state.kind === 'waiting' && !found.body) kept.keep(found, body);
    }
    if (page[0]?.seq === entry.seq || mailbox.get(entry.seq) !== entry) return;
    mailbox.forget(entry);
    unreadable(entry);
  }

  #problem(error: unknown): void {
    const known = isHostError(error)
      ? error
      : new HostError('insufficient_storage', `mailbox '${this.#parts.name}' cannot be read`, {
          hint: 'see to the disk of the broker; it is read again by itself',
          cause: error,
        });
    this.#parts.problem(known);
  }
}
