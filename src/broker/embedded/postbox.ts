/**
 * A mailbox with its disk and its subscriber: takes mail in, hands it out as fast as it is taken, and puts down what becomes
 * of it.
 * Not here: who may send and subscribe (broker-core.ts), the order of things (mailbox.ts), what of the disk is in memory
 * (disk-reading.ts), what nobody can want (postbox-sweeping.ts).
 *
 * Invariants: what was accepted is counted until it is acknowledged, dead, stale or of a key that is gone; no more bodies are in
 * memory than the budget allows and the one that is next.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import type { Sender } from '../ports.js';
import type { Mail, MailStore, NewMail } from '../store-port.js';
import { cancelledFrame, messageFrame } from './broker-frames.js';
import type { Held } from './client-frames.js';
import { CountedSending } from './counted-sending.js';
import { DiskCancels } from './disk-cancels.js';
import { DiskReading } from './disk-reading.js';
import type { BrokerEvent, Dropped } from './events.js';
import { HeldIds } from './held-ids.js';
import { type ByteBudget, KeptBodies } from './kept-bodies.js';
import type { LateRequests } from './late-requests.js';
import type { BrokerLimits } from './limits.js';
import { type Entry, entryOf, Mailbox, type Returned } from './mailbox.js';
import { Fill, hasRoom, isCrowded, isHalfFull, mailboxFull } from './mailbox-room.js';
import { PostboxSweeping } from './postbox-sweeping.js';
import type { Subscriber } from './subscriber.js';

export interface PostboxParts {
  readonly store: MailStore;
  readonly clock: Clock;
  readonly limits: BrokerLimits;
  readonly kept: ByteBudget;
  readonly late: LateRequests;
  /** Whether whoever sent it could send it now. */
  isCurrent(from: Sender): boolean;
  tell(event: BrokerEvent): void;
  /** It was given up for good. */
  died(entry: Entry, mailbox: string): void;
}

/** What an envelope adds to a body, at most, besides names. */
const envelopeBytes = 1_024;

export class Postbox {
  readonly name: string;
  readonly #parts: PostboxParts;
  readonly #mailbox: Mailbox;
  readonly #kept: KeptBodies;
  readonly #counted: CountedSending;
  /** On disk or on its way there. */
  readonly #ids = new HeldIds();
  readonly #disk: DiskReading;
  readonly #cancels: DiskCancels;
  readonly #sweeping: PostboxSweeping;
  readonly #fill: Fill;
  #arriving = 0;
  #subscriber: Subscriber | undefined;
  #cancelWake: Cancel | undefined;

  constructor(name: string, size: { count: number; bytes: number }, parts: PostboxParts) {
    this.name = name;
    this.#parts = parts;
    this.#mailbox = new Mailbox(parts.limits);
    this.#kept = new KeptBodies(parts.kept, parts.limits.keptBytesOfOne);
    this.#counted = new CountedSending(parts.store);
    this.#fill = new Fill(size, parts.limits);
    const { store, clock, limits, tell, isCurrent } = parts;
    this.#disk = new DiskReading(size.count === 0, {
      ...{ name, store, clock, limits, mailbox: this.#mailbox, kept: this.#kept, ids: this.#ids },
      isWanted: () => this.#subscriber !== undefined,
      progressed: () => this.pump(),
      counted: (count, bytes) => this.#recount(count, bytes),
      isCancelled: (mail) => this.#cancels.take(mail),
      foundCancelled: (entry) => this.#withdraw(entry),
      foundDead: (entry) => this.#bury(entry),
      unreadable: (entry) => {
        this.#gone(entry);
        tell({ kind: 'unreadable', ...this.#about(entry) });
      },
      problem: (error) => tell({ kind: 'problem', error }),
    });
    this.#cancels = new DiskCancels({ name, store, disk: this.#disk });
    this.#sweeping = new PostboxSweeping({
      ...{ name, store, clock, limits, isCurrent, mailbox: this.#mailbox, disk: this.#disk },
      hasSubscriber: () => this.#subscriber !== undefined,
      drop: (entry, why) => this.#drop(entry, why),
    });
  }

  get count(): number {
    return this.#fill.count;
  }
  get bytes(): number {
    return this.#fill.bytes;
  }
  get held(): number {
    return this.#mailbox.heldCount;
  }
  get subscriber(): Subscriber | undefined {
    return this.#subscriber;
  }
  /** Nothing would be lost if nobody remembered it. */
  get isIdle(): boolean {
    return this.#fill.count === 0 && this.#arriving === 0 && this.#subscriber === undefined;
  }

  /** Resolves when it is on disk. `answers`: the request that goes with it, of whichever mailbox. */
  async accept(mail: NewMail, answers?: number): Promise<void> {
    const { kind, id } = mail;
    const sender = mail.from.mailbox;
    const { length } = mail.body;
    const { limits, store } = this.#parts;
    if (isCrowded(this.#fill, length, limits)) {
      // The same message again is no new one, and whose the mailbox is full of decides: both must be known.
      if (!this.#disk.isLoaded && (await this.#late(mail))) return;
      this.#sweeping.makeRoom();
      const isHeld = this.#ids.has(sender, kind, id);
      if (!isHeld && !hasRoom(this.#fill, mail, this.#ids.shareOf(sender), limits)) throw this.#full();
    }
    if (kind === 'request') this.#cancels.take(mail);
    this.#arriving++;
    this.#fill.add(length);
    const isFirst = !this.#ids.has(sender, kind, id);
    this.#ids.add(sender, kind, id, length);
    try {
      const { seq, isNew, isAnswered } = await store.put(mail, answers);
      if (isNew) this.#came(seq, mail);
      else this.#notNew(mail);
      if (isAnswered && isFirst) this.#ids.delete(sender, kind, id);
    } catch (error) {
      if (isFirst) this.#ids.delete(sender, kind, id);
      this.#fill.remove(length);
      throw error;
    } finally {
      this.#arriving--;
    }
  }

  /** Reads everything first. True: it was answered meanwhile, and its worker knows. */
  #late({ kind, from, id }: NewMail): Promise<boolean> {
    const isRead = this.#disk.load();
    if (kind === 'reply') return isRead.then(() => false);
    return this.#parts.late.during(isRead, this.name, from.mailbox, id);
  }

  /** A dead one that lives again. */
  revived(mail: Mail): void {
    this.#fill.add(mail.body.length);
    this.#ids.add(mail.from.mailbox, mail.kind, mail.id, mail.body.length);
    this.#came(mail.seq, mail);
  }

  #came(seq: number, mail: NewMail): void {
    // Of a crowded one it must be known whose it is full of.
    const isKnown = this.#subscriber || this.#disk.isReading || isHalfFull(this.#fill, this.#parts.limits);
    if (!isKnown) this.#unload();
    else if (this.#disk.isAbove(seq)) {
      const entry = entryOf({ ...mail, seq, deliveries: 0 });
      if (this.#subscriber) this.#kept.keep(entry, mail.body);
      this.#mailbox.add(entry);
      this.pump();
    }
  }

  subscribe(subscriber: Subscriber): void {
    this.#subscriber = subscriber;
    this.#mailbox.subscribe(subscriber);
    if (this.#disk.isLoaded) this.pump();
    else this.#disk.keepLoading();
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
    if (entry.type === 'reply') this.#parts.late.replyTaken(entry.from.mailbox, this.name, entry.id);
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

  /**
   * Whoever sent it does not wait any more. What was in nobody's hands is gone; of what was, whoever has it hears so now, and
   * whoever gets it, before it gets it. Resolves when that is so.
   */
  async cancel(from: Sender, id: string): Promise<void> {
    const sender = from.mailbox;
    let entry = this.#mailbox.request(sender, id);
    if (entry?.deliveries === 0) return this.#withdraw(entry);
    // It may be run all the same, over a connection that is gone, or be on its way.
    this.#subscriber?.send(cancelledFrame(from, id));
    if (!entry && !this.#disk.isLoaded) {
      const mail = await this.#cancels.find(sender, id);
      // Dead is told when it is found.
      if (!mail || mail.deliveries >= this.#parts.limits.deliveries) return;
      entry = this.#mailbox.request(sender, id) ?? entryOf(mail);
      if (entry.deliveries === 0) return this.#withdraw(entry);
      this.#mailbox.add(entry);
    }
    if (entry) entry.isCancelled = true;
  }

  #withdraw(entry: Entry): void {
    this.#mailbox.forget(entry);
    this.#parts.store.remove(entry.seq);
    this.#gone(entry);
  }

  /** Who sends it again wants it again. */
  #notNew({ kind, from, id, body }: NewMail): void {
    this.#fill.remove(body.length);
    const entry = kind === 'request' ? this.#mailbox.request(from.mailbox, id) : undefined;
    if (entry) entry.isCancelled = false;
  }

  /** Hands out what there is, as long as it is taken. */
  pump(): void {
    while (this.#subscriber && !this.#disk.isFetching) {
      const entry = this.#mailbox.next();
      if (!entry) return;
      const unwanted = this.#sweeping.unwanted(entry);
      if (unwanted) {
        this.#drop(entry, unwanted);
        continue;
      }
      if (!this.#subscriber.canTake(entry.bytes + envelopeBytes)) return;
      const { body } = entry;
      if (!body) return this.#disk.fetch(entry);
      this.#handOut(entry, body, this.#subscriber);
    }
  }

  /** Drops what nobody can want any more. */
  sweep(): Promise<void> {
    return this.#sweeping.sweep();
  }

  /** The mailbox is somebody else's now, or nobody's: what is in it is for neither. Gone before it is handed out, and soon. */
  revoke(): Promise<void> {
    return this.#sweeping.revoke();
  }

  /** Requests whose senders could not send them any more: whoever has one is told so, and what waits goes. */
  cancelRevoked(): void {
    for (const { type, from, id } of this.#mailbox.held())
      if (type === 'request' && !this.#parts.isCurrent(from)) this.#subscriber?.send(cancelledFrame(from, id));
    this.#sweeping.dropPresent();
  }

  close(): void {
    this.#cancelWake?.();
  }

  #handOut(entry: Entry, body: Buffer, subscriber: Subscriber): void {
    const { store, clock } = this.#parts;
    const before = entry.deliveries;
    const lease = this.#mailbox.handOut(entry);
    this.#kept.drop(entry);
    // Not for whoever has it again over another connection.
    const isCounted = entry.deliveries > before;
    if (isCounted && !entry.isCountTold) store.handedOut(entry.seq);
    if (isCounted) entry.isCountTold = false;
    const { seq, id, type, from, deliveries, wasElsewhere, expiresAtMs } = entry;
    const send = (): void => {
      if (entry.isCancelled) subscriber.send(cancelledFrame(from, id));
      const deadlineMs = expiresAtMs === undefined ? undefined : Math.floor(expiresAtMs - clock.date().getTime());
      subscriber.send(messageFrame({ seq, lease, id, type, from, deliveries, wasElsewhere, deadlineMs, body }));
    };
    // Also of what comes back to its holder: its first count may not be on disk yet.
    if (!subscriber.isApart) return send();
    const { epoch } = subscriber;
    this.#counted.add({
      send: () => {
        if (!this.#mailbox.heldBy({ seq, lease }, epoch)) return;
        entry.unsent = 0;
        send();
      },
      notSent: () => {
        if (!this.#mailbox.notSent({ seq, lease }, epoch, isCounted, clock.nowMs())) return;
        this.#kept.keep(entry, body);
        this.#armWake();
        this.pump();
      },
    });
  }

  #recount(count: number, bytes: number): void {
    this.#cancels.clear();
    if (this.#arriving === 0) this.#fill.set(count, bytes);
  }

  /**
   * Without anybody to hand it to, what was never handed out is only counted. Of a mailbox with much in it only the bodies go: who
   * comes and goes must not make the broker read all of it each time.
   */
  #unload(): void {
    if (this.#fill.count === 0) return;
    if (this.#disk.isLoaded && isHalfFull(this.#fill, this.#parts.limits)) this.#disk.dropBodies();
    else this.#disk.unload();
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
    this.#fill.remove(entry.bytes);
  }

  #full(): HostError {
    const { count, bytes } = this.#fill;
    if (this.#fill.isNewlyFull()) this.#parts.tell({ kind: 'mailbox_full', mailbox: this.name, count, bytes });
    return mailboxFull(this.name, this.#parts.limits.mailboxMessages);
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
}
