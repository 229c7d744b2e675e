/**
 * The client's end of a connection: says hello, subscribes, waits for receipts.
 * Not here: what a host or a worker does with what comes (host-link.ts, worker-link.ts); connecting again.
 *
 * Invariants: a deliver has one end, its receipt, its refusal, its time or the connection's; `not_executed` is said only of
 * what was refused or never handed to the wire.
 */
import { isUtf8 } from 'node:buffer';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { Sender } from '../ports.js';
import { type BrokerFrame, readBrokerFrame } from './broker-frames.js';
import { type Deliver, deliverFrame, helloFrame, subscribeFrame } from './client-frames.js';
import { bodyBytesMax, receiptMs } from './limits.js';
import type { Wire, WireReader } from './wire.js';

export type Connect = (reader: WireReader, signal: CancelSignal) => Promise<Wire>;

/** What is left for the one who uses the link. */
export type LinkFrame = Extract<BrokerFrame, { kind: 'message' | 'cancel' | 'joined' | 'told' }>;

export interface LinkOptions {
  readonly connect: Connect;
  readonly key: string;
  /** Of a host. */
  readonly instance?: string;
  readonly clock: Clock;
  /** Never before whoever opened the link has it. */
  readonly onFrame: (frame: LinkFrame) => void;
}

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: HostError) => void;
  readonly cancelLimit: Cancel;
}

const openMs = 10_000;
const receiptsMax = 10_000;

export class Link implements WireReader {
  readonly closed: Promise<HostError | undefined>;
  readonly #options: LinkOptions;
  readonly #receipts = new Map<string, Waiter[]>();
  #wire: Wire | undefined;
  #me: Sender | undefined;
  /** The store of the broker, by our clock. */
  #beganAtMs: number | undefined;
  #opened: { resolve: () => void; reject: (error: HostError) => void } | undefined;
  #lastError: HostError | undefined;
  /** What came before the link was handed over; no more than the window. */
  #early: LinkFrame[] | undefined = [];
  #isOver = false;
  #isClosedHere = false;
  #settleClosed: (error: HostError | undefined) => void = () => {};

  private constructor(options: LinkOptions) {
    this.#options = options;
    this.closed = new Promise((resolve) => {
      this.#settleClosed = resolve;
    });
  }

  static async open(options: LinkOptions, signal: CancelSignal): Promise<Link> {
    const link = new Link(options);
    const { clock, connect, key, instance } = options;
    link.#wire = await connect(link, signal);
    const onAbort = () => link.#giveUp('cancelled');
    const cancelLimit = clock.at(clock.nowMs() + openMs, () => link.#giveUp('hello_timeout'));
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      await new Promise<void>((resolve, reject) => {
        link.#opened = { resolve, reject };
        if (signal.aborted) return link.#giveUp('cancelled');
        link.#wire?.send(helloFrame({ key, instance }));
        link.#wire?.send(subscribeFrame());
      });
    } finally {
      link.#opened = undefined;
      cancelLimit();
      signal.removeEventListener('abort', onAbort);
    }
    setImmediate(() => link.#handOver());
    return link;
  }

  #welcomed({ mailbox, role, beganMsAgo }: Extract<BrokerFrame, { kind: 'welcome' }>): void {
    if (this.#me) return;
    this.#me = Object.freeze({ mailbox, role });
    if (beganMsAgo !== undefined) this.#beganAtMs = this.#options.clock.nowMs() - beganMsAgo;
  }

  #handOver(): void {
    const early = this.#early ?? [];
    this.#early = undefined;
    for (const frame of early) this.#options.onFrame(frame);
  }

  get me(): Sender {
    if (!this.#me) throw new Error('nobody was welcomed');
    return this.#me;
  }

  /** By the wall of now; only where the broker took the place of one that is gone. */
  get heldSince(): Date | undefined {
    const { clock } = this.#options;
    if (this.#beganAtMs === undefined) return undefined;
    return new Date(clock.date().getTime() - (clock.nowMs() - this.#beganAtMs));
  }

  isAwaited(to: string, id: string): boolean {
    return this.#receipts.has(receiptKey(to, id));
  }

  /** Resolves when the broker holds it. */
  deliver(frame: Deliver): Promise<void> {
    if (this.#isOver || !this.#wire) return Promise.reject(lost('not_executed'));
    const problem = checkBody(frame.body);
    if (problem) return Promise.reject(problem);
    if (this.#receipts.size >= receiptsMax) return Promise.reject(tooMany());
    const wire = this.#wire;
    const { clock } = this.#options;
    return new Promise((resolve, reject) => {
      const key = receiptKey(frame.to, frame.id);
      const waiter: Waiter = {
        resolve,
        reject,
        cancelLimit: clock.at(clock.nowMs() + receiptMs, () => {
          this.#unwait(key, waiter);
          reject(noReceipt());
        }),
      };
      const waiters = this.#receipts.get(key);
      if (waiters) waiters.push(waiter);
      else this.#receipts.set(key, [waiter]);
      wire.send(deliverFrame(frame));
    });
  }

  send(frame: Buffer): void {
    if (!this.#isOver) this.#wire?.send(frame);
  }

  async close(): Promise<void> {
    this.#isClosedHere = true;
    this.#wire?.close('bye');
    await this.closed;
  }

  frame(bytes: Buffer): void {
    if (this.#isOver || this.#isClosedHere) return;
    const frame = readBrokerFrame(bytes);
    // A newer broker may say what nobody here knows.
    if (frame === undefined) return;
    switch (frame.kind) {
      case 'welcome':
        this.#welcomed(frame);
        return;
      case 'subscribed':
        if (this.#me) this.#opened?.resolve();
        return;
      case 'delivered':
        return this.#receipt(frame.to, frame.id, ({ resolve }) => resolve());
      case 'refused':
        return this.#receipt(frame.to, frame.id, ({ reject }) => reject(frame.error));
      case 'error':
        this.#lastError = frame.error;
        return;
      default:
        if (this.#early) this.#early.push(frame);
        else this.#options.onFrame(frame);
    }
  }

  heard(): void {}

  ended(why: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const said = this.#lastError;
    const error =
      said && (said.code === 'unauthenticated' || said.details.reason === why) ? said : lost('uncertain', why);
    for (const waiters of this.#receipts.values()) {
      for (const { cancelLimit, reject } of waiters) {
        cancelLimit();
        reject(lost('uncertain', why));
      }
    }
    this.#receipts.clear();
    this.#opened?.reject(error.with({ execution: 'not_executed' }));
    this.#settleClosed(this.#isClosedHere ? undefined : error);
  }

  #receipt(to: string, id: string, settle: (waiter: Waiter) => void): void {
    const key = receiptKey(to, id);
    const [waiter] = this.#receipts.get(key) ?? [];
    if (!waiter) return;
    this.#unwait(key, waiter);
    settle(waiter);
  }

  #unwait(key: string, waiter: Waiter): void {
    waiter.cancelLimit();
    const left = this.#receipts.get(key)?.filter((each) => each !== waiter) ?? [];
    if (left.length > 0) this.#receipts.set(key, left);
    else this.#receipts.delete(key);
  }

  #giveUp(reason: string): void {
    this.#opened?.reject(
      new HostError('connect_failed', 'the broker did not let the connection in', {
        reason,
        execution: 'not_executed',
        hint: 'see that what answers there is a broker',
      }),
    );
    this.#isClosedHere = true;
    this.#wire?.close('bye');
  }
}

const receiptKey = (to: string, id: string): string => `${to} ${id}`;

/** Here, because the broker could only cut a connection that sends such a thing. */
function checkBody(body: Buffer): HostError | undefined {
  if (body.length > bodyBytesMax)
    return new HostError('result_too_large', `a message of ${body.length} bytes is too large for the broker`, {
      ...{ limit: bodyBytesMax, actual: body.length, execution: 'not_executed', reason: 'message_too_large' },
      hint: 'send less at a time',
    });
  return isUtf8(body)
    ? undefined
    : new HostError('protocol_error', 'a message must be UTF-8', {
        execution: 'not_executed',
        reason: 'utf8',
        hint: 'a server behind this host writes bytes that are no text',
      });
}

const lost = (execution: 'not_executed' | 'uncertain', reason = 'closed'): HostError =>
  new HostError('transport', 'the connection to the broker is lost', {
    reason,
    execution,
    hint: 'it is made again by itself where that is wanted',
  });

const noReceipt = (): HostError =>
  new HostError('timeout', `the broker gave no receipt within ${receiptMs / 1_000} s`, {
    reason: 'receipt',
    phase: 'written',
    execution: 'uncertain',
    hint: 'it may be kept: send it again under the same id',
  });

const tooMany = (): HostError =>
  new HostError('overloaded', 'too many messages wait for their receipt', {
    reason: 'receipts',
    limit: receiptsMax,
    execution: 'not_executed',
    hint: 'try again when some of them came',
  });
