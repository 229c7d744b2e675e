/**
 * One connection as the broker sees it: who it is, how fast it may talk, how much it may leave unread, and when it is over.
 * Not here: what its frames do (broker-core.ts, through `SessionCore`), what carries them (wire.ts).
 *
 * Invariants: nothing is done for a connection before its hello was good, and then only as what its key says; a frame is
 * handled after all that came before it; after its end nothing it sent is handled any more.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import type { Sender } from '../ports.js';
import { deliveredFrame, errorFrame, refusedFrame, subscribedFrame, toldFrame, welcomeFrame } from './broker-frames.js';
import { type ClientFrame, type Deliver, type ReadClientFrame, readClientFrame } from './client-frames.js';
import type { Claim, Credential } from './credentials.js';
import type { TurnedAway } from './events.js';
import { workerValuesMax } from './frame-members.js';
import type { BrokerLimits } from './limits.js';
import type { Subscriber } from './subscriber.js';
import { TokenBucket } from './token-bucket.js';
import type { CloseReason, Wire, WireReader } from './wire.js';

/** What a session may ask of the broker. */
export interface SessionCore {
  readonly clock: Clock;
  readonly limits: BrokerLimits;
  admit(claim: Claim): Credential | undefined;
  /** Only where its store began in the place of one that is gone. */
  readonly beganMsAgo: number | undefined;
  /** It takes nobody any more, whatever its key. */
  readonly isClosing: boolean;
  /** Whether its holder may have one connection more. */
  hasRoomFor(credential: Credential): boolean;
  /** Shared by all connections of a mailbox. Undefined: as fast as it can. */
  bucketOf(credential: Credential): TokenBucket | undefined;
  welcomed(session: Session): void;
  /** Resolves when it is held. */
  deliver(session: Session, frame: Deliver): Promise<void>;
  /** All but a hello and a deliver. */
  handle(session: Session, frame: Exclude<ClientFrame, Deliver | { kind: 'hello' }>): void;
  /** There is room in what it reads from again. */
  pump(session: Session): void;
  ended(session: Session, reason: string): void;
  turnedAway(session: Session, reason: TurnedAway): void;
  refused(): void;
}

export class Session implements WireReader, Subscriber {
  readonly epoch: string;
  /** In this process: it is neither silent nor slow, and needs no key. */
  readonly isLocal: boolean;
  readonly #core: SessionCore;
  readonly #wire: Wire;
  #credential: Credential | undefined;
  #holder: string | undefined;
  #isWelcome = false;
  #isOver = false;
  #bucket: TokenBucket | undefined;
  readonly #controls: TokenBucket;
  readonly #fences: TokenBucket;
  /** What came and was not handled yet; after a pause no more comes than was on its way. */
  readonly #inbox: Buffer[] = [];
  /** The first of them, read. */
  #next: ReadClientFrame | undefined;
  #isPaused = false;
  #arriving = 0;
  #arrivingBytes = 0;
  #tells = 0;
  #heardMs: number;
  #refused = 0;
  #isSlow = false;
  #cancelHello: Cancel;
  #cancelRate: Cancel = () => {};
  #cancelSlow: Cancel = () => {};
  #cancelLease: Cancel = () => {};

  constructor(core: SessionCore, wire: Wire, epoch: string, local?: Credential) {
    this.#core = core;
    this.#wire = wire;
    this.epoch = epoch;
    this.#credential = local;
    this.isLocal = local !== undefined;
    this.#heardMs = core.clock.nowMs();
    this.#controls = new TokenBucket(core.limits.controls, this.#heardMs);
    this.#fences = new TokenBucket(core.limits.fences, this.#heardMs);
    this.#cancelHello = core.clock.at(this.#heardMs + core.limits.helloMs, () =>
      this.#turnAway('hello_timeout', 'hello_timeout'),
    );
  }

  /** Only after the hello. */
  get credential(): Credential {
    if (!this.#credential) throw new Error('nobody said hello');
    return this.#credential;
  }
  get isWelcome(): boolean {
    return this.#isWelcome && !this.#isOver;
  }
  get isHost(): boolean {
    return this.#credential?.kind === 'host';
  }
  get who(): Sender {
    const { mailbox, role } = this.credential;
    return { mailbox, role };
  }
  get holder(): string | undefined {
    return this.#holder;
  }
  get isApart(): boolean {
    return this.isHost && !this.isLocal;
  }
  get window(): number {
    return this.isHost ? this.#core.limits.hostWindow : this.#core.limits.window;
  }
  get windowOfOne(): number {
    return this.isHost ? this.#core.limits.hostWindowOfOne : this.window;
  }
  get refusedCount(): number {
    return this.#refused;
  }

  frame(bytes: Buffer): void {
    if (this.#isOver) return;
    this.#inbox.push(bytes);
    this.#run();
  }

  heard(): void {
    this.#heardMs = this.#core.clock.nowMs();
  }

  /** What is not answered is not missed: whoever asks hears that we are here from what it does not read. */
  control(answer: ((flushed: () => void) => void) | undefined): void {
    if (this.#isOver) return;
    if (this.#controls.take(this.#core.clock.nowMs()) > 0) return this.#tooFast('pings');
    if (answer && this.canTake(pongBytesMax)) answer(this.#flushed);
  }

  ended(why: string): void {
    if (!this.#isOver) this.#finish(why);
  }

  /** Its messages come again elsewhere. `error` is what it is told. */
  cut(why: CloseReason, error: HostError): void {
    if (this.#isOver) return;
    this.send(errorFrame(error));
    this.#finish(why);
    this.#wire.close(why);
  }

  canTake(bytes: number): boolean {
    if (this.#isOver) return false;
    const { bufferedBytes } = this.#wire;
    const hasRoom = bufferedBytes === 0 || bufferedBytes + bytes <= this.#core.limits.outboundBytes;
    if (!hasRoom) this.#slow();
    return hasRoom;
  }

  send(frame: Buffer): void {
    if (this.#isOver) return;
    this.#wire.send(frame, this.#flushed);
    if (this.#wire.bufferedBytes > this.#core.limits.outboundBytes) this.#slow();
  }

  /** False when it has more news on their way than it may: it misses these. */
  told(body: Buffer): boolean {
    const { tells, outboundBytes } = this.#core.limits;
    const { bufferedBytes } = this.#wire;
    const hasRoom = bufferedBytes === 0 || bufferedBytes + body.length + toldBytes <= outboundBytes;
    if (!this.isWelcome || this.#isSlow || !hasRoom || this.#tells >= tells) return false;
    this.#tells++;
    this.#wire.send(toldFrame(body), () => {
      this.#tells--;
      this.#flushed();
    });
    return true;
  }

  subscribed(): void {
    this.send(subscribedFrame());
    if (!this.isLocal) this.#watchLease();
  }

  /** It spoke about what it does not hold. That is free only for who holds something. */
  fenced(frame: Buffer): void {
    const nowMs = this.#core.clock.nowMs();
    if (!this.isLocal && this.#fences.take(nowMs) > 0) return this.#tooFast('words about what it does not hold');
    this.#bucket?.take(nowMs);
    this.refuse(frame);
  }

  refuse(frame: Buffer): void {
    this.#refused++;
    this.#core.refused();
    this.send(frame);
  }

  #run(): void {
    while (this.#inbox.length > 0 && !this.#isOver && !this.#isSlow) {
      const [bytes] = this.#inbox;
      const isTrusted = this.isHost && this.#isWelcome;
      this.#next ??= readClientFrame(bytes as Buffer, isTrusted ? Number.MAX_SAFE_INTEGER : workerValuesMax);
      if (!this.#mayGoOn(this.#next)) break;
      const frame = this.#next;
      this.#next = undefined;
      this.#inbox.shift();
      this.#handle(frame);
    }
    const mustPause = this.#inbox.length > 0 || this.#isSlow;
    if (mustPause === this.#isPaused || this.#isOver) return;
    this.#isPaused = mustPause;
    if (mustPause) this.#wire.pause();
    else this.#wire.resume();
  }

  /** When not, `#run` comes again by itself. */
  #mayGoOn(frame: ReadClientFrame): boolean {
    const { limits, clock } = this.#core;
    if (frame.kind === 'ack' || frame.kind === 'release') return true;
    const isFull = this.#arriving >= limits.arriving || this.#arrivingBytes >= limits.arrivingBytes;
    if (frame.kind === 'deliver' && isFull) return false;
    const waitMs = this.#bucket?.take(clock.nowMs()) ?? 0;
    if (waitMs === 0) return true;
    this.#cancelRate();
    this.#cancelRate = clock.at(clock.nowMs() + waitMs, () => this.#run());
    return false;
  }

  #handle(frame: ReadClientFrame): void {
    if (!this.#isWelcome) return this.#hello(frame);
    switch (frame.kind) {
      case 'hello':
        return;
      case 'bad':
        this.#refused++;
        this.#core.refused();
        return this.cut('bad_frame', badFrame(frame.field, frame.what));
      case 'refused':
        return this.refuse(refusedFrame(frame.id, frame.to, badFrame(frame.field, frame.what)));
      case 'deliver':
        return void this.#deliver(frame);
      default:
        return this.#core.handle(this, frame);
    }
  }

  #hello(frame: ReadClientFrame): void {
    // Not for want of a key: who is told that does not come back.
    if (this.#core.isClosing) return this.cut('going_away', over('going_away', 'the broker stops'));
    if (frame.kind !== 'hello') return this.#turnAway('bad_hello', 'refused');
    // Of a connection inside this process it was said who it is when it was made.
    const admitted = this.#credential ?? this.#core.admit(frame);
    if (!admitted) return this.#turnAway('unknown_key', 'refused');
    if (!this.isLocal && !this.#core.hasRoomFor(admitted))
      return this.#turnAway('too_many_connections', 'refused', tooManyOfKey(this.#core.limits.connectionsOfKey));
    this.#credential = admitted;
    this.#holder = frame.instance;
    this.#isWelcome = true;
    this.#wire.welcomed?.();
    this.#cancelHello();
    this.#bucket = this.#core.bucketOf(admitted);
    this.send(welcomeFrame(this.who, this.epoch, this.isHost ? this.#core.beganMsAgo : undefined));
    this.#core.welcomed(this);
  }

  #turnAway(reason: TurnedAway, why: CloseReason, error = notAdmitted()): void {
    if (this.#isOver) return;
    this.#wire.send(errorFrame(error));
    this.#over();
    this.#core.turnedAway(this, reason);
    this.#wire.close(why);
  }

  async #deliver(frame: Deliver): Promise<void> {
    const { id, to, body } = frame;
    this.#arriving++;
    this.#arrivingBytes += body.length;
    try {
      await this.#core.deliver(this, frame);
      this.send(deliveredFrame(id, to));
    } catch (error) {
      this.refuse(refusedFrame(id, to, isHostError(error) ? error : notKept(error)));
    }
    this.#arriving--;
    this.#arrivingBytes -= body.length;
    this.#run();
  }

  #tooFast(what: string): void {
    this.cut('too_fast', over('too_fast', `the connection sends more ${what} than it may`));
  }

  #slow(): void {
    if (this.#isSlow || this.#isOver) return;
    this.#isSlow = true;
    const { clock, limits } = this.#core;
    this.#cancelSlow = clock.at(clock.nowMs() + limits.slowMs, () =>
      this.cut('slow_consumer', over('slow_consumer', 'the connection does not read what is sent to it')),
    );
    if (!this.#isPaused) this.#wire.pause();
    this.#isPaused = true;
  }

  readonly #flushed = (): void => {
    if (!this.#isSlow || this.#isOver || this.#wire.bufferedBytes > this.#core.limits.outboundBytes) return;
    this.#isSlow = false;
    this.#cancelSlow();
    this.#core.pump(this);
    this.#run();
  };

  #watchLease(): void {
    const { clock, limits } = this.#core;
    const untilMs = this.#heardMs + limits.leaseMs;
    if (clock.nowMs() >= untilMs) return this.cut('silent', over('silent', 'nothing was heard of the connection'));
    this.#cancelLease = clock.at(untilMs, () => this.#watchLease());
  }

  #finish(reason: string): void {
    const wasWelcome = this.#isWelcome;
    this.#over();
    if (wasWelcome) this.#core.ended(this, reason);
    else this.#core.turnedAway(this, 'left_before_hello');
  }

  #over(): void {
    this.#isOver = true;
    this.#inbox.length = 0;
    this.#next = undefined;
    this.#cancelHello();
    this.#cancelRate();
    this.#cancelSlow();
    this.#cancelLease();
  }
}

/** Around the body of news. */
const toldBytes = toldFrame(Buffer.alloc(0)).length;
/** What a pong may be on the wire. */
const pongBytesMax = 2 + 125;

/** The same for every reason: which one it was helps nobody who has a key. */
export const notAdmitted = (): HostError =>
  new HostError('unauthenticated', 'the broker does not let this key in', {
    execution: 'not_executed',
    hint: 'see that the key is one of the broker and has not ended',
  });

/** Not final: those that are there may be lost already, and then end by themselves. */
const tooManyOfKey = (limit: number): HostError =>
  new HostError('overloaded', `there are ${limit} connections with this key already`, {
    reason: 'too_many_connections',
    limit,
    execution: 'not_executed',
    hint: 'give each worker a key of its own, or try again when one of them has ended',
  });

export const over = (reason: string, what: string): HostError => new HostError('transport', what, { reason });

const badFrame = (field: string, what: string): HostError =>
  new HostError('invalid_request', `${field}: ${what}`, {
    field,
    reason: 'bad_frame',
    execution: 'not_executed',
    hint: 'both sides must run versions of Hostler that know each other',
  });

const notKept = (cause: unknown): HostError =>
  new HostError('insufficient_storage', 'the message could not be kept', {
    execution: 'uncertain',
    hint: 'send it again under the same id; an operator of the broker sees why',
    cause,
  });
