/**
 * The broker without a socket: who is connected, and who may send what where.
 * Not here: one connection (session.ts), the mailboxes (postboxes.ts), listening (ws-server.ts).
 *
 * Invariants: a sender is stamped from its credential; one subscriber per mailbox, the newest; a connection whose key is gone,
 * over or another's is cut, and what it sent and was not yet run is not run any more.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import type { LetterCall } from '../careful-letters.js';
import { hostMailbox, type Sender, ttlMsMax } from '../ports.js';
import type { DeadLetter, MailStore } from '../store-port.js';
import { errorFrame, joinedFrame } from './broker-frames.js';
import type { ClientFrame, Deliver } from './client-frames.js';
import { type Claim, type Credential, Credentials } from './credentials.js';
import type { BrokerEvent, BrokerStatus, TurnedAway } from './events.js';
import { KeyUsage } from './key-usage.js';
import { type BrokerLimits, brokerLimits } from './limits.js';
import type { Postbox } from './postbox.js';
import { Postboxes } from './postboxes.js';
import { notAdmitted, over, Session, type SessionCore } from './session.js';
import type { TokenBucket } from './token-bucket.js';
import type { Wire } from './wire.js';

export interface BrokerCoreOptions {
  readonly store: MailStore;
  readonly clock: Clock;
  readonly credentials: readonly Credential[];
  /** Of the host inside this process, which has no key. */
  readonly hostMailbox?: string;
  readonly limits?: Partial<BrokerLimits>;
  readonly onEvent?: (event: BrokerEvent) => void;
}

/** The wall may be set meanwhile: a key that ends far away is looked at again before. */
const expiryLookMs = 30_000;

export class BrokerCore implements SessionCore {
  readonly clock: Clock;
  readonly limits: BrokerLimits;
  readonly #store: MailStore;
  readonly #onEvent: (event: BrokerEvent) => void;
  readonly #hostMailbox: string;
  readonly #boot = newId().slice(0, 8);
  #credentials: Credentials;
  readonly #sessions = new Set<Session>();
  readonly #boxes: Postboxes;
  #connectionNumber = 0;
  #localCount = 0;
  #strangers = 0;
  readonly #usage: KeyUsage;
  #cancelExpiry: Cancel = () => {};
  #isClosed = false;
  readonly #counts = { redeliveries: 0, refused: 0, fenced: 0, turnedAway: 0, deadLetters: 0 };

  constructor(options: BrokerCoreOptions) {
    const { store, clock, credentials, limits, onEvent = () => {} } = options;
    this.#hostMailbox = options.hostMailbox ?? hostMailbox;
    this.clock = clock;
    this.limits = { ...brokerLimits, ...limits };
    this.#usage = new KeyUsage(clock, this.limits);
    this.#store = store;
    this.#onEvent = onEvent;
    this.#credentials = new Credentials(credentials);
    this.#boxes = new Postboxes({
      ...{ store, clock, limits: this.limits },
      isOwned: (mailbox) => this.#isOwned(mailbox),
      isCurrent: (from) => this.#isCurrent(from),
      tell: (event) => this.#tell(event),
    });
  }

  /** Before anybody is let in. */
  async open(): Promise<void> {
    await this.#boxes.open();
    this.#counts.deadLetters = (await this.#store.deadLetters()).length;
    this.#watchExpiry();
  }

  get hasRoom(): boolean {
    if (this.#isClosed || this.#strangers >= this.limits.strangers) return false;
    return this.#sessions.size - this.#localCount < this.limits.connections;
  }

  /** The reader of what the other end of the wire says. A credential is only for connections inside this process. */
  attach(wire: Wire, local?: Credential): Session {
    const session = new Session(this, wire, `${this.#boot}-${++this.#connectionNumber}`, local);
    this.#sessions.add(session);
    if (local) this.#localCount++;
    else this.#strangers++;
    return session;
  }

  /** From now on these. Whoever could not come in any more as what it is, is cut at once. */
  rekey(credentials: readonly Credential[]): void {
    const before = this.#credentials;
    this.#credentials = new Credentials(credentials);
    this.#tell({ kind: 'rekeyed', cut: this.#cutUnadmitted() });
    this.#boxes.revoke((name) => name !== this.#hostMailbox && !this.#credentials.isSameOwner(name, before));
    this.#usage.forget((mailbox) => this.#credentials.owns(mailbox));
    this.#watchExpiry();
  }

  status(): BrokerStatus {
    const mailboxes = this.#boxes.status();
    const held = mailboxes.reduce((sum, box) => sum + box.held, 0);
    const connections = this.#sessions.size - this.#localCount;
    return { connections, mailboxes, held, ...this.#counts, store: this.#store.state };
  }

  deadLetters(): Promise<readonly DeadLetter[]> {
    return this.#store.deadLetters();
  }

  /** Of which calls those are that are requests. */
  async deadCalls(): Promise<readonly LetterCall[]> {
    const requests = (await this.#store.deadLetters()).filter(({ kind }) => kind === 'request');
    return requests.map(({ seq, from, id, sentAtMs }) => ({ seq, mailbox: from.mailbox, id, sentAtMs }));
  }

  /** Back into its mailbox, once. False when there is no such dead letter (any more). */
  async revive(seq: number): Promise<boolean> {
    const letter = (await this.#store.deadLetters()).find((each) => each.seq === seq);
    if (letter?.kind === 'request' && !this.#isCurrent(letter.from)) throw revoked();
    if (letter?.kind === 'reply' && !this.#credentials.owns(letter.to)) throw revoked();
    const mail = await this.#store.revive(seq);
    if (!mail) return false;
    this.#counts.deadLetters--;
    this.#boxes.of(mail.to).revived(mail);
    return true;
  }

  async dropDead(seq: number): Promise<boolean> {
    const isDropped = await this.#store.dropDead(seq);
    if (isDropped) this.#counts.deadLetters--;
    return isDropped;
  }

  turnAway(reason: TurnedAway): void {
    this.#counts.turnedAway++;
    this.#tell({ kind: 'turned_away', reason });
  }

  /** Everybody is sent away; what was taken is on disk when it resolves, or it was told that it is not. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelExpiry();
    // First, so that whoever waits for a receipt gets it.
    await this.#flushed();
    for (const session of [...this.#sessions]) session.cut('going_away', over('going_away', 'the broker stops'));
    this.#boxes.close();
    await this.#flushed();
  }

  /** A disk that failed is no reason to stay. */
  async #flushed(): Promise<void> {
    try {
      await this.#store.flush();
    } catch (error) {
      this.#tell({ kind: 'problem', error: isHostError(error) ? error : notFlushed(error) });
    }
  }

  // What sessions ask.

  admit(claim: Claim): Credential | undefined {
    return this.#credentials.admit(claim, this.#wallMs());
  }

  get beganMsAgo(): number | undefined {
    const { beganAtMs } = this.#store;
    return beganAtMs === undefined ? undefined : Math.max(0, Math.floor(this.#wallMs() - beganAtMs));
  }

  get isClosing(): boolean {
    return this.#isClosed;
  }

  hasRoomFor(credential: Credential): boolean {
    return this.#usage.hasRoomFor(credential);
  }

  bucketOf(credential: Credential): TokenBucket | undefined {
    return this.#usage.bucketOf(credential);
  }

  welcomed({ credential, who, epoch, isLocal }: Session): void {
    if (!isLocal) {
      this.#strangers--;
      this.#usage.connected(credential);
    }
    this.#tell({ kind: 'connected', name: credential.name, who, epoch });
  }

  async deliver(session: Session, { id, type, to, ttlMs, answers, body }: Deliver): Promise<void> {
    if (this.#isClosed) throw over('going_away', 'the broker stops').with({ execution: 'not_executed' });
    const { kind, sendsTo } = session.credential;
    const isAllowed = kind === 'host' ? type === 'reply' : type === 'request' && sendsTo.includes(to);
    if (!isAllowed) throw notAllowed('this key may not send that there');
    if (!this.#isOwned(to)) throw notAllowed('nobody has that mailbox', 'unknown_mailbox');
    const sentAtMs = this.#wallMs();
    // A request without an end would run whenever a host comes, however late.
    const lastsMs = ttlMs ?? (type === 'request' ? ttlMsMax : undefined);
    const expiresAtMs = lastsMs === undefined ? undefined : sentAtMs + lastsMs;
    // A copy: the bytes lie in what came over the wire, which is far larger than a small message.
    const own = Buffer.allocUnsafeSlow(body.length);
    body.copy(own);
    const box = this.#boxes.of(to);
    // Who lost the request may still have an answer to it, but does not end it: it is somebody else's by now.
    const requests = kind === 'host' && answers ? this.#postboxOf(session) : undefined;
    const request = answers && requests?.answering(answers, session.epoch);
    if (requests && answers && !request) this.#fence(session, answers.seq);
    try {
      // Who has the mailbox by now is not who asked.
      if (request && !this.#isCurrent(request.from)) throw notAllowed('whoever asked has no key any more', 'revoked');
      const mail = { to, from: session.who, id, kind: type, sentAtMs, expiresAtMs, body: own };
      await box.accept(mail, request?.seq);
      if (request) requests?.answered(request);
    } catch (error) {
      // In doubt it may be over, and its worker may hear the answer: then nobody gets it before the next start.
      const isSurelyNot = isHostError(error) && error.details.execution === 'not_executed';
      if (request && isSurelyNot) requests?.notAnswered(request);
      throw error;
    } finally {
      this.#boxes.forgetIdle(box);
      this.#boxes.forgetIdle(requests);
    }
  }

  handle(session: Session, frame: Exclude<ClientFrame, Deliver | { kind: 'hello' }>): void {
    switch (frame.kind) {
      case 'subscribe':
        return this.#subscribe(session);
      case 'ack':
        if (!this.#postboxOf(session)?.ack(frame, session.epoch)) this.#fence(session, frame.seq);
        return this.#boxes.forgetIdle(this.#postboxOf(session));
      case 'release':
        if (!this.#postboxOf(session)?.release(frame, session.epoch, frame.delayMs, frame.reason))
          this.#fence(session, frame.seq);
        return;
      case 'tell':
        return this.#tellWorkers(session, frame.to, frame.body);
      case 'cancel':
        return this.#cancel(session, frame.to, frame.id);
      default:
        frame satisfies never;
    }
  }

  pump(session: Session): void {
    const box = this.#postboxOf(session);
    if (box?.subscriber === session) box.pump();
  }

  ended(session: Session, reason: string): void {
    this.#leave(session);
    const { credential, who, epoch, refusedCount } = session;
    if (!session.isLocal) this.#usage.disconnected(credential);
    this.#tell({ kind: 'disconnected', name: credential.name, who, epoch, reason, refused: refusedCount });
    const box = this.#postboxOf(session);
    box?.unsubscribe(epoch, `connection lost: ${reason}`);
    this.#boxes.forgetIdle(box);
  }

  turnedAway(session: Session, reason: TurnedAway): void {
    this.#leave(session);
    if (!session.isLocal) this.#strangers--;
    this.turnAway(reason);
  }

  refused(): void {
    this.#counts.refused++;
  }

  #subscribe(session: Session): void {
    const box = this.#boxes.of(session.credential.mailbox);
    const before = box.subscriber;
    if (before !== session) {
      if (before instanceof Session) {
        this.#tell({ kind: 'replaced', mailbox: box.name });
        before.cut('replaced', over('replaced', 'another connection has the mailbox now'));
      }
      // The end of the one before may have made the broker forget an empty mailbox.
      this.#boxes.keep(box);
      session.subscribed();
      box.subscribe(session);
    }
    if (session.isHost) return;
    for (const host of this.#sessions) if (host.isHost && host.isWelcome) host.send(joinedFrame(session.who));
  }

  #tellWorkers(session: Session, to: string | undefined, body: Buffer): void {
    if (!session.isHost) return session.refuse(errorFrame(notAllowed('only a host tells')));
    if (to === undefined) {
      for (const each of this.#sessions) if (each.isWelcome && !each.isHost) each.told(body);
    } else {
      const there = this.#boxes.get(to)?.subscriber;
      if (there instanceof Session) there.told(body);
    }
  }

  #cancel(session: Session, to: string, id: string): void {
    if (session.isHost || !session.credential.sendsTo.includes(to))
      return session.refuse(errorFrame(notAllowed('this key may not cancel there')));
    const box = this.#boxes.get(to);
    if (box) void box.cancel(session.who, id).finally(() => this.#boxes.forgetIdle(box));
  }

  #fence(session: Session, seq: number): void {
    this.#counts.fenced++;
    this.#tell({ kind: 'fenced', mailbox: session.who.mailbox, seq });
    session.fenced(
      errorFrame(
        new HostError('invalid_request', `message ${seq} is not held by this connection`, {
          reason: 'lease_lost',
          execution: 'not_executed',
          hint: 'it comes again to whoever has the mailbox',
        }),
      ),
    );
  }

  #leave(session: Session): void {
    if (this.#sessions.delete(session) && session.isLocal) this.#localCount--;
  }

  #cutUnadmitted(): number {
    const wallMs = this.#wallMs();
    const gone = [...this.#sessions].filter(
      (each) => each.isWelcome && !each.isLocal && !this.#credentials.stillHolds(each.credential, wallMs),
    );
    for (const session of gone) session.cut('refused', notAdmitted());
    this.#boxes.cancelRevoked();
    return gone.length;
  }

  #isOwned(mailbox: string): boolean {
    return mailbox === this.#hostMailbox || this.#credentials.owns(mailbox);
  }

  #isCurrent(from: Sender): boolean {
    return this.#credentials.speaksAs(from, this.#wallMs());
  }

  #watchExpiry(): void {
    this.#cancelExpiry();
    const wallMs = this.#wallMs();
    const nextMs = this.#credentials.nextExpiryMs(wallMs);
    if (nextMs === undefined) return;
    this.#cancelExpiry = this.clock.at(this.clock.nowMs() + Math.min(nextMs - wallMs, expiryLookMs), () => {
      this.#cutUnadmitted();
      this.#watchExpiry();
    });
  }

  #postboxOf(session: Session): Postbox | undefined {
    return this.#boxes.get(session.credential.mailbox);
  }

  #wallMs(): number {
    return this.clock.date().getTime();
  }

  #tell(event: BrokerEvent): void {
    if (event.kind === 'redelivered') this.#counts.redeliveries++;
    if (event.kind === 'dead_letter') this.#counts.deadLetters++;
    try {
      this.#onEvent(event);
    } catch {
      // Whoever listens must not disturb who is served.
    }
  }
}

const notFlushed = (cause: unknown): HostError =>
  new HostError('insufficient_storage', 'what the broker took last is not on its disk', {
    execution: 'uncertain',
    hint: 'see to the disk of the broker',
    cause,
  });

const revoked = (): HostError =>
  new HostError('denied', 'whoever it is of has no key any more, or has another role', {
    reason: 'revoked',
    execution: 'not_executed',
    hint: 'drop it, or give its sender a key again',
  });

const notAllowed = (what: string, reason = 'destination'): HostError =>
  new HostError('denied', what, {
    reason,
    execution: 'not_executed',
    hint: 'see what the broker allows the holder of this key',
  });
