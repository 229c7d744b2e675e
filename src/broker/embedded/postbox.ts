/**
 * A mailbox with its disk and its subscriber: takes mail in, hands it out as fast as it is taken, and puts down what becomes
 * of it.
 * Not here: who may send and subscribe (broker-core.ts), the order of things (mailbox.ts).
 *
 * Invariants: what was accepted is counted until it is acknowledged, dead, stale or of a key that is gone; without a subscriber no body is in memory;
 * with one, no more bodies than the budget allows and the one that is next.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import type { Sender } from '../ports.js';
import type { Mail, MailStore, NewMail } from '../store-port.js';
import { cancelledFrame, messageFrame } from './broker-frames.js';
import type { Held } from './client-frames.js';
import type { BrokerEvent, Dropped } from './events.js';
import { HeldIds } from './held-ids.js';
import { type ByteBudget, KeptBodies } from './kept-bodies.js';
import type { BrokerLimits } from './limits.js';
import { type Entry, entryOf, Mailbox, type Returned } from './mailbox.js';
import { hasRoom, isCrowded, isHalfFull, mailboxFull } from './mailbox-room.js';
import type { Subscriber } from './subscriber.js';

export interface PostboxParts {
  readonly store: MailStore;
  readonly clock: Clock;
  readonly limits: BrokerLimits;
  readonly kept: ByteBudget;
  /** Whether whoever sent it could send it now. */
  isCurrent(from: Sender): boolean;
  tell(event: BrokerEvent): void;
  /** It was given up for good. */
  died(entry: Entry, mailbox: string): void;
}

/** What an envelope adds to a body, at most, besides names. */
const envelopeBytes = 1_024;
const readAgainMs = 1_000;
const roomLookMs = 1_000;

export class Postbox {
  readonly name: string;
  readonly #parts: PostboxParts;
  readonly #mailbox: Mailbox;
  readonly #kept: KeptBodies;
  /** On disk or on its way there. */
  readonly #ids = new HeldIds();
  #count: number;
  #bytes: number;
  #arriving = 0;
  #subscriber: Subscriber | undefined;
  /** Up to here the disk was read; what is put above it is added as it comes, once all was read. */
  #readThrough = 0;
  #loading: Promise<void> | undefined;
  #isLoaded: boolean;
  #cameMeanwhile = false;
  #unloads = 0;
  #isFetching = false;
  #roomLookedForMs = Number.NEGATIVE_INFINITY;
  #wasFull = false;
  #cancelWake: Cancel | undefined;
  /** What was sent up to then was for somebody else. Until all of it is gone. */
  #revokedAtMs: number | undefined;

  constructor(name: string, size: { count: number; bytes: number }, parts: PostboxParts) {
    this.name = name;
    this.#parts = parts;
    this.#mailbox = new Mailbox(parts.limits);
    this.#kept = new KeptBodies(parts.kept, parts.limits.keptBytesOfOne);
    this.#count = size.count;
    this.#bytes = size.bytes;
    this.#isLoaded = size.count === 0;
  }

  get count(): number {
    return this.#count;
  }
  get bytes(): number {
    return this.#bytes;
  }
  get held(): number {
    return this.#mailbox.heldCount;
  }
  get subscriber(): Subscriber | undefined {
    return this.#subscriber;
  }
  /** Nothing would be lost if nobody remembered it. */
  get isIdle(): boolean {
    return this.#count === 0 && this.#arriving === 0 && this.#subscriber === undefined;
  }

  /** Resolves when it is on disk. `answers`: the request that goes with it, of whichever mailbox. */
  async accept(mail: NewMail, answers?: number): Promise<void> {
    const { kind, id } = mail;
    const sender = mail.from.mailbox;
    const { length } = mail.body;
    const { limits, store } = this.#parts;
    if (isCrowded(this, length, limits)) {
      // The same message again is no new one, and whose the mailbox is full of decides: both must be known.
      if (!this.#isLoaded) await this.#load();
      this.#makeRoom();
      const isHeld = this.#ids.has(sender, kind, id);
      if (!isHeld && !hasRoom(this, mail, this.#ids.shareOf(sender), limits)) throw this.#full();
    }
    this.#arriving++;
    this.#count++;
    this.#bytes += length;
    const isFirst = !this.#ids.has(sender, kind, id);
    this.#ids.add(sender, kind, id, length);
    try {
      const { seq, isNew, isAnswered } = await store.put(mail, answers);
      if (isNew) this.#came(seq, mail);
      else this.#uncount(length);
      if (isAnswered && isFirst) this.#ids.delete(sender, kind, id);
    } catch (error) {
      if (isFirst) this.#ids.delete(sender, kind, id);
      this.#uncount(length);
      throw error;
    } finally {
      this.#arriving--;
    }
  }

  /** A dead one that lives again. */
  revived(mail: Mail): void {
    this.#count++;
    this.#bytes += mail.body.length;
    this.#ids.add(mail.from.mailbox, mail.kind, mail.id, mail.body.length);
    this.#came(mail.seq, mail);
  }

  #came(seq: number, mail: NewMail): void {
    // Of a crowded one it must be known whose it is full of.
    if (!this.#subscriber && this.#loading === undefined && !isHalfFull(this, this.#parts.limits)) this.#unload();
    else if (!this.#isLoaded) this.#cameMeanwhile = true;
    else if (seq > this.#readThrough) {
      const entry = entryOf({ ...mail, seq, deliveries: 0 });
      if (this.#subscriber) this.#kept.keep(entry, mail.body);
      this.#mailbox.add(entry);
      this.pump();
    }
  }

  subscribe(subscriber: Subscriber): void {
    this.#subscriber = subscriber;
    this.#mailbox.subscribe(subscriber);
    if (this.#isLoaded) this.pump();
    else this.#load().catch(() => this.#loadLater());
  }

  /** False when it was not the subscriber: nothing changes. What it held comes again. */
  unsubscribe(epoch: string, reason: string): boolean {
    const returned = this.#mailbox.unsubscribe(epoch, reason);
    if (!returned) return false;
    this.#subscriber = undefined;
    for (const each of returned) this.#returned(each, reason);
    this.#unload();
    return true;
  }

  /** False when whoever says so does not hold it. */
  ack(held: Held, epoch: string): boolean {
    const entry = this.#mailbox.ack(held, epoch);
    if (!entry) return false;
    this.#parts.store.remove(entry.seq);
    this.#gone(entry);
    this.pump();
    return true;
  }

  /** Its holder answers it: whose it is, until `answered` or `notAnswered`. Undefined when whoever says so does not hold it. */
  answering(held: Held, epoch: string): Entry | undefined {
    return this.#mailbox.ending(held, epoch);
  }

  /** It is not on disk any more. */
  answered(entry: Entry): void {
    if (this.#mailbox.get(entry.seq) !== entry) return;
    this.#mailbox.forget(entry);
    this.#gone(entry);
    this.pump();
  }

  notAnswered(entry: Entry): void {
    const returned = this.#mailbox.notEnded(entry);
    if (returned) this.#returned(returned, entry.reasons.at(-1) ?? '');
    this.pump();
  }

  release(held: Held, epoch: string, delayMs: number, reason: string): boolean {
    const returned = this.#mailbox.release(held, epoch, delayMs, reason, this.#parts.clock.nowMs());
    if (returned === false) return false;
    if (returned) this.#returned(returned, reason);
    this.#armWake();
    this.pump();
    return true;
  }

  /** Whether it was still waiting, and is gone now. */
  withdraw(sender: string, id: string): boolean {
    const entry = this.#ids.has(sender, 'request', id) ? this.#mailbox.withdraw(sender, id) : undefined;
    if (!entry) return false;
    this.#parts.store.remove(entry.seq);
    this.#gone(entry);
    return true;
  }

  /** Hands out what there is, as long as it is taken. */
  pump(): void {
    while (this.#subscriber && !this.#isFetching) {
      const entry = this.#mailbox.next();
      if (!entry) return;
      const unwanted = this.#unwanted(entry, entry.type);
      if (unwanted) {
        this.#drop(entry, unwanted);
        continue;
      }
      if (!this.#subscriber.canTake(entry.bytes + envelopeBytes)) return;
      const { body } = entry;
      if (!body) return void this.#fetch(entry);
      this.#handOut(entry, body, this.#subscriber);
    }
  }

  /** Drops what nobody can want any more. From the oldest, and no further than the first that is young. */
  async sweep(): Promise<void> {
    const { store, limits } = this.#parts;
    const wallMs = this.#parts.clock.date().getTime();
    const revokedAtMs = this.#revokedAtMs;
    const youngMs = Math.max(wallMs - limits.staleMs, revokedAtMs ?? 0);
    if (this.#isLoaded) {
      for (const entry of [...this.#mailbox.entries()]) {
        const unwanted = entry.state.kind === 'held' ? undefined : this.#unwanted(entry, entry.type);
        if (unwanted) this.#drop(entry, unwanted);
      }
      return this.#swept(revokedAtMs);
    }
    for (let after = 0; !this.#subscriber && this.#loading === undefined; ) {
      const page = await store.read(this.name, after, limits.page);
      const last = page.at(-1);
      if (this.#subscriber || this.#loading !== undefined) return;
      if (!last) return this.#swept(revokedAtMs);
      for (const mail of page) {
        const unwanted = this.#unwanted(mail, mail.kind);
        if (unwanted) this.#drop(this.#mailbox.get(mail.seq) ?? entryOf(mail), unwanted);
      }
      if (last.sentAtMs > youngMs) return;
      after = last.seq;
    }
  }

  /** The mailbox is somebody else's now, or nobody's: what is in it is for neither. Gone before it is handed out, and soon. */
  revoke(): Promise<void> {
    this.#revokedAtMs = this.#parts.clock.date().getTime();
    return this.sweep();
  }

  /** Requests whose senders could not send them any more: whoever has one is told so, and what waits goes. */
  cancelRevoked(): void {
    for (const entry of [...this.#mailbox.entries()]) {
      if (entry.type !== 'request' || this.#parts.isCurrent(entry.from)) continue;
      if (entry.state.kind === 'held') this.#subscriber?.send(cancelledFrame(entry.from, entry.id));
      else this.#drop(entry, 'revoked');
    }
  }

  #swept(revokedAtMs: number | undefined): void {
    if (this.#revokedAtMs === revokedAtMs) this.#revokedAtMs = undefined;
  }

  close(): void {
    this.#cancelWake?.();
  }

  #handOut(entry: Entry, body: Buffer, subscriber: Subscriber): void {
    const { store, clock } = this.#parts;
    const lease = this.#mailbox.handOut(entry);
    this.#kept.drop(entry);
    store.handedOut(entry.seq);
    const { seq, id, type, from, deliveries, wasElsewhere, expiresAtMs } = entry;
    const deadlineMs = expiresAtMs === undefined ? undefined : Math.floor(expiresAtMs - clock.date().getTime());
    subscriber.send(messageFrame({ seq, lease, id, type, from, deliveries, wasElsewhere, deadlineMs, body }));
  }

  #load(): Promise<void> {
    this.#loading ??= this.#readAll().finally(() => {
      this.#loading = undefined;
    });
    return this.#loading;
  }

  #loadLater(): void {
    const { clock } = this.#parts;
    clock.at(clock.nowMs() + readAgainMs, () => {
      if (this.#subscriber && !this.#isLoaded) this.#load().catch(() => this.#loadLater());
    });
  }

  async #readAll(): Promise<void> {
    const { store, limits } = this.#parts;
    while (!this.#isLoaded) {
      this.#cameMeanwhile = false;
      const unloads = this.#unloads;
      let page: readonly Mail[];
      try {
        page = await store.read(this.name, this.#readThrough, limits.page);
      } catch (error) {
        this.#problem(error);
        throw error;
      }
      // It was given up meanwhile, and begins again.
      if (unloads !== this.#unloads) continue;
      for (const mail of page) this.#found(mail);
      this.#readThrough = page.at(-1)?.seq ?? this.#readThrough;
      this.#isLoaded = page.length === 0 && !this.#cameMeanwhile;
      this.pump();
    }
    this.#recount();
  }

  #found(mail: Mail): void {
    this.#ids.add(mail.from.mailbox, mail.kind, mail.id, mail.body.length);
    if (this.#mailbox.get(mail.seq)) return;
    const entry = entryOf(mail);
    if (entry.deliveries >= this.#parts.limits.deliveries) {
      entry.reasons.push(`handed out ${entry.deliveries} times before the broker started again`);
      this.#bury(entry);
      return;
    }
    if (this.#subscriber) this.#kept.keep(entry, mail.body);
    this.#mailbox.add(entry);
  }

  /** What the disk turned out not to hold (any more) is not counted. */
  #recount(): void {
    if (this.#arriving > 0) return;
    let bytes = 0;
    for (const entry of this.#mailbox.entries()) bytes += entry.bytes;
    this.#count = this.#mailbox.size;
    this.#bytes = bytes;
  }

  /** Bodies are read in pages: who waits behind is wanted next, as often as not. */
  #fetch(entry: Entry): void {
    const { store, limits } = this.#parts;
    this.#isFetching = true;
    store.read(this.name, entry.seq - 1, limits.page).then(
      (page) => {
        this.#isFetching = false;
        for (const { seq, body } of this.#subscriber ? page : []) {
          const found = this.#mailbox.get(seq);
          if (found === entry) found.body ??= body;
          else if (found?.state.kind === 'waiting' && !found.body) this.#kept.keep(found, body);
        }
        if (page[0]?.seq !== entry.seq && this.#mailbox.get(entry.seq) === entry) {
          this.#mailbox.forget(entry);
          this.#gone(entry);
          this.#parts.tell({ kind: 'unreadable', ...this.#about(entry) });
        }
        this.pump();
      },
      (error: unknown) => {
        this.#problem(error);
        const { clock } = this.#parts;
        clock.at(clock.nowMs() + readAgainMs, () => {
          this.#isFetching = false;
          this.pump();
        });
      },
    );
  }

  /**
   * Without anybody to hand it to, what was never handed out is only counted. What was, is remembered with its reasons. Of a
   * mailbox with much in it only the bodies go: who comes and goes must not make the broker read all of it each time.
   */
  #unload(): void {
    if (this.#count === 0) return;
    if (this.#isLoaded && isHalfFull(this, this.#parts.limits)) {
      for (const entry of this.#mailbox.entries()) this.#kept.drop(entry);
      return;
    }
    this.#isLoaded = false;
    this.#readThrough = 0;
    this.#unloads++;
    for (const entry of [...this.#mailbox.entries()]) {
      this.#kept.drop(entry);
      if (entry.deliveries === 0) this.#mailbox.forget(entry);
    }
    this.#ids.clear();
  }

  #returned({ entry, isDead }: Returned, reason: string): void {
    if (isDead) this.#bury(entry);
    else this.#parts.tell({ kind: 'redelivered', ...this.#about(entry), reason, deliveries: entry.deliveries });
  }

  /** A reply is in the journal of calls: nobody need look after it, and it must not push out a request that died. */
  #bury(entry: Entry): void {
    if (entry.type === 'reply') return this.#drop(entry, 'not_taken');
    const { store, tell } = this.#parts;
    store.bury(entry.seq, entry.reasons);
    this.#gone(entry);
    tell({ kind: 'dead_letter', ...this.#about(entry), reasons: entry.reasons });
    this.#parts.died(entry, this.name);
  }

  #drop(entry: Entry, reason: Dropped): void {
    this.#mailbox.forget(entry);
    this.#parts.store.remove(entry.seq);
    this.#gone(entry);
    this.#parts.tell({ kind: 'dropped', ...this.#about(entry), reason });
  }

  #gone(entry: Entry): void {
    this.#kept.drop(entry);
    this.#ids.delete(entry.from.mailbox, entry.type, entry.id);
    this.#uncount(entry.bytes);
  }

  #uncount(bytes: number): void {
    this.#count--;
    this.#bytes -= bytes;
    if (this.#wasFull) this.#wasFull = isCrowded(this, 0, this.#parts.limits);
  }

  #full(): HostError {
    const { count, bytes } = this;
    if (!this.#wasFull) this.#parts.tell({ kind: 'mailbox_full', mailbox: this.name, count, bytes });
    this.#wasFull = true;
    return mailboxFull(this.name, this.#parts.limits.mailboxMessages);
  }

  /** Looked at once in a while: it is asked for with every message that finds the mailbox crowded. */
  #makeRoom(): void {
    const nowMs = this.#parts.clock.nowMs();
    if (nowMs < this.#roomLookedForMs + roomLookMs) return;
    this.#roomLookedForMs = nowMs;
    for (const entry of [...this.#mailbox.entries()]) {
      if (entry.state.kind === 'held') continue;
      const unwanted = this.#unwanted(entry, entry.type) ?? (this.#isExpired(entry) ? 'stale' : undefined);
      if (unwanted) this.#drop(entry, unwanted);
    }
  }

  /** Its worker has given up; a host would only say so. */
  #isExpired({ type, expiresAtMs }: Entry): boolean {
    const { clock, limits } = this.#parts;
    return type === 'request' && expiresAtMs !== undefined && clock.date().getTime() - expiresAtMs > limits.expiredMs;
  }

  #unwanted(mail: Pick<Mail, 'expiresAtMs' | 'sentAtMs' | 'from'>, kind: Mail['kind']): Dropped | undefined {
    if (this.#revokedAtMs !== undefined && mail.sentAtMs <= this.#revokedAtMs) return 'revoked';
    if (kind === 'request' && !this.#parts.isCurrent(mail.from)) return 'revoked';
    const endMs = mail.expiresAtMs ?? (kind === 'reply' ? mail.sentAtMs : undefined);
    const isStale = endMs !== undefined && this.#parts.clock.date().getTime() - endMs > this.#parts.limits.staleMs;
    return isStale ? 'stale' : undefined;
  }

  #armWake(): void {
    this.#cancelWake?.();
    const dueMs = this.#mailbox.nextDueMs();
    if (dueMs === undefined) return;
    this.#cancelWake = this.#parts.clock.at(dueMs, () => {
      this.#mailbox.wake(this.#parts.clock.nowMs());
      this.#armWake();
      this.pump();
    });
  }

  #about({ seq, id, from }: Entry) {
    return { mailbox: this.name, seq, id, from };
  }

  #problem(error: unknown): void {
    const known = isHostError(error)
      ? error
      : new HostError('insufficient_storage', `mailbox '${this.name}' cannot be read`, {
          hint: 'see to the disk of the broker; it is read again by itself',
          cause: error,
        });
    this.#parts.tell({ kind: 'problem', error: known });
  }
}
