/**
 * Drops from a mailbox what nobody can want any more: of what is in memory, or page by page of what is on disk.
 * Not here: the rule itself (unwanted.ts), what becomes of one that is dropped (postbox.ts).
 *
 * Invariants: what is in somebody's hands stays; a mailbox that was revoked stays so until all that was sent before is gone.
 */
import type { Clock } from '../../kernel/clock.js';
import type { MailStore } from '../store-port.js';
import type { DiskReading } from './disk-reading.js';
import type { Dropped } from './events.js';
import type { BrokerLimits } from './limits.js';
import { type Entry, entryOf, isInHands, type Mailbox } from './mailbox.js';
import { type Present, unwantedFor } from './unwanted.js';

export interface SweepingParts extends Pick<Present, 'isCurrent'> {
  readonly name: string;
  readonly store: MailStore;
  readonly clock: Clock;
  readonly limits: BrokerLimits;
  readonly mailbox: Mailbox;
  readonly disk: DiskReading;
  hasSubscriber(): boolean;
  drop(entry: Entry, why: Dropped): void;
}

const roomLookMs = 1_000;

export class PostboxSweeping {
  readonly #parts: SweepingParts;
  readonly #present: Present & { revokedAtMs: number | undefined };
  #roomLookedForMs = Number.NEGATIVE_INFINITY;

  constructor(parts: SweepingParts) {
    this.#parts = parts;
    const { limits, clock, isCurrent } = parts;
    this.#present = {
      ...{ revokedAtMs: undefined, staleMs: limits.staleMs, isCurrent },
      wallMs: () => clock.date().getTime(),
    };
  }

  unwanted(entry: Entry): Dropped | undefined {
    return unwantedFor(entry, entry.type, this.#present);
  }

  /** Of what is in memory and in nobody's hands. */
  dropPresent(): void {
    this.#dropBy(this.#present);
  }

  /** Looked at once in a while: it is asked for with every message that finds the mailbox crowded. */
  makeRoom(): void {
    const { clock, limits } = this.#parts;
    const nowMs = clock.nowMs();
    if (nowMs < this.#roomLookedForMs + roomLookMs) return;
    this.#roomLookedForMs = nowMs;
    this.#dropBy({ ...this.#present, expiredMs: limits.expiredMs });
  }

  revoke(): Promise<void> {
    this.#present.revokedAtMs = this.#present.wallMs();
    return this.sweep();
  }

  /** From the oldest, and no further than the first that is young. */
  async sweep(): Promise<void> {
    const { name, store, limits, mailbox, disk, drop, hasSubscriber } = this.#parts;
    const { revokedAtMs } = this.#present;
    const youngMs = Math.max(this.#present.wallMs() - limits.staleMs, revokedAtMs ?? 0);
    if (disk.isLoaded) {
      this.dropPresent();
      return this.#swept(revokedAtMs);
    }
    const isLeftAlone = () => !hasSubscriber() && !disk.isReading;
    for (let after = 0; isLeftAlone(); ) {
      const page = await store.read(name, after, limits.page);
      const last = page.at(-1);
      if (!isLeftAlone()) return;
      if (!last) return this.#swept(revokedAtMs);
      for (const mail of page) {
        const unwanted = unwantedFor(mail, mail.kind, this.#present);
        if (unwanted) drop(mailbox.get(mail.seq) ?? entryOf(mail), unwanted);
      }
      if (last.sentAtMs > youngMs) return;
      after = last.seq;
    }
  }

  #swept(revokedAtMs: number | undefined): void {
    if (this.#present.revokedAtMs === revokedAtMs) this.#present.revokedAtMs = undefined;
  }

  #dropBy(present: Present): void {
    const { mailbox, drop } = this.#parts;
    for (const entry of [...mailbox.entries()]) {
      if (isInHands(entry)) continue;
      const unwanted = unwantedFor(entry, entry.type, present);
      if (unwanted) drop(entry, unwanted);
    }
  }
}
