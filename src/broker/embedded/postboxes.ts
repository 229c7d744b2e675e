/**
 * The mailboxes of a broker: those that hold something or have somebody, made when first wanted and forgotten when idle.
 * Not here: one mailbox (postbox.ts), who may do what with it (broker-core.ts).
 *
 * Invariants: of one name there is one; what is on disk is counted from the start; a mailbox that nobody remembers holds nothing.
 * Bound: one for each mailbox that has a key or mail.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { errorReply, joined } from '../messages.js';
import type { Sender } from '../ports.js';
import type { MailStore } from '../store-port.js';
import type { BrokerEvent, MailboxStatus } from './events.js';
import { ByteBudget } from './kept-bodies.js';
import { LateRequests } from './late-requests.js';
import type { BrokerLimits } from './limits.js';
import type { Entry } from './mailbox.js';
import { Postbox } from './postbox.js';

export interface PostboxesParts {
  readonly store: MailStore;
  readonly clock: Clock;
  readonly limits: BrokerLimits;
  /** Whether anybody has a key to it. */
  isOwned(mailbox: string): boolean;
  /** Whether whoever sent it could send it now. */
  isCurrent(from: Sender): boolean;
  tell(event: BrokerEvent): void;
}

const sweepMs = 3_600_000;

export class Postboxes {
  readonly #parts: PostboxesParts;
  readonly #kept: ByteBudget;
  readonly #late = new LateRequests();
  readonly #boxes = new Map<string, Postbox>();
  #cancelSweep: Cancel = () => {};
  #isClosed = false;

  constructor(parts: PostboxesParts) {
    this.#parts = parts;
    this.#kept = new ByteBudget(parts.limits.keptBytes);
  }

  async open(): Promise<void> {
    for (const { mailbox, ...size } of await this.#parts.store.sizes())
      this.#boxes.set(mailbox, this.#newBox(mailbox, size));
    // Its key went while nobody was here.
    this.revoke((mailbox) => !this.#parts.isOwned(mailbox));
    this.#sweepLater();
  }

  get(name: string): Postbox | undefined {
    return this.#boxes.get(name);
  }

  /** Made when there is none. */
  of(name: string): Postbox {
    let box = this.#boxes.get(name);
    if (!box) {
      box = this.#newBox(name, { count: 0, bytes: 0 });
      this.#boxes.set(name, box);
    }
    return box;
  }

  /** It is used again, also when it was idle for a moment. */
  keep(box: Postbox): void {
    this.#boxes.set(box.name, box);
  }

  forgetIdle(box: Postbox | undefined): void {
    if (box?.isIdle && this.#boxes.get(box.name) === box) {
      box.close();
      this.#boxes.delete(box.name);
    }
  }

  /** Those are somebody else's now, or nobody's. */
  revoke(isRevoked: (mailbox: string) => boolean): void {
    for (const box of [...this.#boxes.values()]) {
      if (!isRevoked(box.name)) continue;
      // What cannot be read now is dropped when it is its turn.
      box
        .revoke()
        .catch(() => undefined)
        .finally(() => this.forgetIdle(box));
    }
  }

  /** Requests in all of them whose senders could not send them any more. */
  cancelRevoked(): void {
    for (const box of [...this.#boxes.values()]) {
      box.cancelRevoked();
      this.forgetIdle(box);
    }
  }

  status(): readonly MailboxStatus[] {
    return [...this.#boxes.values()].map(({ name, count, bytes, held, subscriber }) => ({
      ...{ mailbox: name, count, bytes, held },
      isSubscribed: subscriber !== undefined,
    }));
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelSweep();
    for (const box of this.#boxes.values()) box.close();
  }

  #newBox(name: string, size: { readonly count: number; readonly bytes: number }): Postbox {
    const { store, clock, limits, isCurrent, tell } = this.#parts;
    const died = (entry: Entry) => void this.#answerDead(entry, name);
    const shared = { store, clock, limits, kept: this.#kept, late: this.#late };
    return new Postbox(name, size, { ...shared, isCurrent, tell, died });
  }

  /** Whoever waits for a request that was given up hears so now, and not at its deadline. */
  async #answerDead({ type, id, from }: Entry, name: string): Promise<void> {
    const { clock, isOwned } = this.#parts;
    if (type !== 'request' || !isOwned(from.mailbox)) return;
    const sender = { mailbox: name, role: undefined };
    const sentAtMs = clock.date().getTime();
    const box = this.of(from.mailbox);
    try {
      const body = joined(...errorReply(givenUp()));
      await box.accept({ to: from.mailbox, from: sender, id, kind: 'reply', sentAtMs, expiresAtMs: undefined, body });
    } catch {
      // No room for it, or no disk: the deadline of whoever waits is still there.
    }
    // Both may have been kept for this alone.
    this.forgetIdle(box);
    this.forgetIdle(this.#boxes.get(name));
  }

  #sweepLater(): void {
    const { clock } = this.#parts;
    this.#cancelSweep = clock.at(clock.nowMs() + sweepMs, () => {
      void this.#sweep().finally(() => {
        if (!this.#isClosed) this.#sweepLater();
      });
    });
  }

  async #sweep(): Promise<void> {
    for (const box of [...this.#boxes.values()]) {
      await box.sweep().catch(() => undefined);
      this.forgetIdle(box);
    }
  }
}

const givenUp = (): HostError =>
  new HostError('outcome_uncertain', 'the request was handed out too often without being finished', {
    reason: 'dead_letter',
    execution: 'uncertain',
    hint: 'look whether it has run before it is tried again; the broker keeps it with its reasons',
  });
