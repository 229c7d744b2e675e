/**
 * The journal of calls that came in bundles: those that are claimed in one turn of the loop have one claim.
 * Not here: their results (nats-bundle-records.ts), calls that came alone (nats-journal.ts), what a claim looks like
 * (nats-claim-log.ts).
 *
 * Invariants: as in nats-journal.ts, for each call of a bundle; a call of a bundle that was answered has a claim, run or not, so
 * that it is not begun when its bundle comes again for the sake of others.
 */
import { HostError } from '../../kernel/errors.js';
import { type CallClaim, type Claimed, messageBytesMax } from '../ports.js';
import { bundleCallsMax } from './nats-bundle.js';
import { type BundledRun, BundleRecords } from './nats-bundle-records.js';
import { type ClaimEntry, type ClaimLog, ClaimSlot, type Wanted, writeSlot } from './nats-claim-log.js';
import type { Receipt } from './nats-connection.js';
import { claimedMeanwhile, inDoubt, tooLarge } from './nats-failures.js';
import type { MailboxNames } from './nats-names.js';
import {
  type ClaimState,
  claimChanges,
  graceMs,
  type JournalParts,
  journalFull,
  nameOf,
  type OwnClaims,
  roundsMax,
} from './nats-own-claims.js';

/** Past its deadline, for clocks that are not in step. */
const clockDoubtMs = 10 * 60_000;
const mine: Claimed = { kind: 'mine' };

/** What becomes of a claim that is wanted. */
interface ClaimingSteps {
  readonly won: (name: string, slot: ClaimSlot) => void;
  readonly failed: (name: string) => void;
  readonly look: (claim: CallClaim, log: ClaimLog, entry: ClaimEntry, isFirst: boolean) => Promise<Claimed | undefined>;
  readonly again: (claiming: Claiming, log: ClaimLog) => void;
}

/** Of one call that somebody wants to run. */
class Claiming implements Wanted {
  overrides = -1;
  rounds = 0;

  constructor(
    readonly steps: ClaimingSteps,
    readonly claim: CallClaim,
    readonly log: ClaimLog,
    readonly name: string,
    readonly isFirst: boolean,
    readonly resolve: (claimed: Claimed) => void,
    readonly reject: (error: unknown) => void,
  ) {}

  get key(): string {
    return this.claim.key;
  }

  get hash(): string {
    return this.claim.hash;
  }

  get until(): Date {
    return this.claim.rememberUntil;
  }

  won(slot: ClaimSlot): void {
    this.steps.won(this.name, slot);
    this.resolve(mine);
  }

  taken(entry: ClaimEntry): void {
    const { steps, claim, log, name, isFirst } = this;
    steps.look(claim, log, entry, isFirst).then(
      (found) => {
        if (found === undefined) {
          this.overrides = entry.slot;
          this.rounds++;
          return steps.again(this, log);
        }
        if (isFirst && found.kind !== 'mine') steps.failed(name);
        this.resolve(found);
      },
      (error) => this.failed(inDoubt(error)),
    );
  }

  failed(error: unknown): void {
    if (this.isFirst) this.steps.failed(this.name);
    this.reject(error);
  }
}

export class BundleJournal {
  readonly #parts: JournalParts;
  readonly #own: OwnClaims<BundledRun>;
  readonly #records: BundleRecords;
  readonly #steps: ClaimingSteps = {
    won: (name, slot) => this.#won(name, slot),
    failed: (name) => this.#notMine(name),
    look: (claim, log, entry, isFirst) => this.#look(claim.mailbox, claim.key, log, entry, claim, isFirst),
    again: (claiming, log) => this.#want(claiming.claim.mailbox, log, claiming),
  };

  constructor(parts: JournalParts, own: OwnClaims<BundledRun>) {
    this.#parts = parts;
    this.#own = own;
    this.#records = new BundleRecords(parts, own);
  }

  claim(claim: CallClaim, log: ClaimLog): Promise<Claimed> {
    const { mailbox, key } = claim;
    const { running } = this.#own;
    const name = nameOf(mailbox, key, log);
    // From before it is asked for: whoever finds our claim may ask us about it before we have its receipt.
    const isFirst = !running.has(name);
    if (isFirst) running.set(name, undefined);
    return new Promise((resolve, reject) => {
      this.#want(mailbox, log, new Claiming(this.#steps, claim, log, name, isFirst, resolve, reject));
    });
  }

  /** Answers what was not begun, for good. False: it is claimed. Rejects if it is claimed meanwhile. */
  async close(mailbox: string, key: string, log: ClaimLog, reply: Buffer, cameAgain: boolean): Promise<boolean> {
    const { running, finished } = this.#own;
    const name = nameOf(mailbox, key, log);
    // Who had it before may have claimed it, and nobody looked since.
    if (cameAgain && log.slots === 0 && !running.has(name))
      await log.readOn(await this.#parts.connection(), this.#parts.names.of(mailbox));
    if (running.has(name) || log.entryOf(key) !== undefined) return false;
    running.set(name, undefined);
    const slot = await new Promise<ClaimSlot | undefined>((won, reject) => {
      const failed = (error: unknown) => {
        this.#notMine(name);
        reject(error);
      };
      const until = log.deadlineAt;
      const taken = () => won(undefined);
      this.#want(mailbox, log, { key, name, hash: '', until, overrides: -1, rounds: 0, won, taken, failed });
    });
    if (slot === undefined) {
      this.#notMine(name);
      throw claimedMeanwhile();
    }
    this.#won(name, slot);
    await this.finish(mailbox, key, log, reply);
    finished.delete(name);
    return true;
  }

  finish(mailbox: string, key: string, log: ClaimLog, body: Buffer): Promise<void> {
    const name = nameOf(mailbox, key, log);
    return new Promise((resolve, reject) => {
      const slot = this.#own.running.get(name)?.slot;
      if (slot === undefined || body.length > messageBytesMax) {
        this.#own.running.delete(name);
        return reject(slot === undefined ? unclaimed() : tooLarge('reply', body.length));
      }
      this.#records.keep(mailbox, slot, { id: key, name, body, resolve, reject });
    });
  }

  /** What became of a call without wanting it; undefined: nobody claimed it. */
  async outcome(mailbox: string, key: string, log: ClaimLog): Promise<Claimed | undefined> {
    const isFirst = !this.#own.running.has(nameOf(mailbox, key, log));
    await log.readOn(await this.#parts.connection(), this.#parts.names.of(mailbox));
    const entry = log.entryOf(key);
    return entry && this.#look(mailbox, key, log, entry, undefined, isFirst);
  }

  /** Whether it was run, and is over: not only answered. */
  async hasRun(mailbox: string, key: string, log: ClaimLog): Promise<boolean> {
    const connection = await this.#parts.connection();
    const names = this.#parts.names.of(mailbox);
    await log.readOn(connection, names);
    const entry = log.entryOf(key);
    if (entry === undefined || entry.hash === '') return false;
    return (await this.#records.find(connection, names, log, entry, key)) !== undefined;
  }

  #won(name: string, slot: ClaimSlot): void {
    this.#own.running.set(name, { slot });
  }

  /** Whoever won it meanwhile, of the same bundle handed out another time, has it still. */
  #notMine(name: string): void {
    const { running } = this.#own;
    if (running.get(name) === undefined) running.delete(name);
  }

  #want(mailbox: string, log: ClaimLog, wanted: Wanted): void {
    if (log.wanted.push(wanted) > 1 || log.isWriting) return;
    setImmediate(() => void this.#write(mailbox, log));
  }

  /** One claim for what is wanted now, and another one for what was wanted meanwhile. */
  async #write(mailbox: string, log: ClaimLog): Promise<void> {
    if (log.isWriting) return;
    log.isWriting = true;
    try {
      while (log.wanted.length > 0) {
        const wanted = [...this.#free(log).values()];
        if (wanted.length === 0) continue;
        await this.#writeOne(mailbox, log, wanted).catch((error) => {
          for (const each of wanted) each.failed(error);
        });
      }
    } finally {
      log.isWriting = false;
    }
  }

  /** Those that nobody has, as far as we know; the others are told who has them. */
  #free(log: ClaimLog): Map<string, Wanted> {
    const batch = new Map<string, Wanted>();
    const rest: Wanted[] = [];
    for (const wanted of log.wanted) {
      const entry = log.entryOf(wanted.key);
      if (entry !== undefined && entry.slot > wanted.overrides) wanted.taken(entry);
      else if (batch.has(wanted.key) || batch.size >= bundleCallsMax) rest.push(wanted);
      else batch.set(wanted.key, wanted);
    }
    log.wanted = rest;
    return batch;
  }

  async #writeOne(mailbox: string, log: ClaimLog, wanted: Wanted[]): Promise<void> {
    const { instance, boot } = this.#parts;
    const names = this.#parts.names.of(mailbox);
    log.requireRoom();
    const slot = log.slots;
    const by = { boot, number: this.#own.nextNumber() };
    const connection = await this.#parts.connection();
    let receipt: Receipt;
    try {
      receipt = await connection.keep(log.subjectOf(names, slot), writeSlot(instance, by, wanted));
    } catch (error) {
      for (const { name } of wanted) this.#own.doubt(name, by.number);
      throw error;
    }
    if (receipt.kind === 'full') throw journalFull(mailbox, receipt.why);
    if (receipt.kind === 'kept') {
      log.add(slot, receipt.seq, by, wanted);
      const claimed = this.#slot(log, names, slot, receipt.seq, wanted);
      for (const each of wanted) each.won(claimed);
      return;
    }
    await log.readOn(connection, names).catch((error) => {
      throw inDoubt(error);
    });
    for (const each of wanted) {
      // Those that somebody has are told so, however often others were faster.
      const isTaken = (log.entryOf(each.key)?.slot ?? -1) > each.overrides;
      if (!isTaken && ++each.rounds > roundsMax) each.failed(claimChanges(mailbox));
      else log.wanted.push(each);
    }
  }

  #slot(
    log: ClaimLog,
    names: MailboxNames,
    slot: number,
    seq: number,
    calls: readonly Pick<Wanted, 'until'>[],
    size = calls.length,
  ): ClaimSlot {
    // Not before the end of any call of the bundle: whoever reads its claims stops at the first that is not there.
    let untilMs = log.deadlineAt.getTime() + clockDoubtMs;
    for (const { until } of calls) untilMs = Math.max(untilMs, until.getTime());
    const made = new ClaimSlot(log, names, slot, seq, new Date(untilMs + graceMs), size);
    log.own.set(slot, made);
    return made;
  }

  /** What became of a call that is claimed. Undefined: that claim may be passed over. */
  async #look(
    mailbox: string,
    key: string,
    log: ClaimLog,
    entry: ClaimEntry,
    wanted: CallClaim | undefined,
    isFirst: boolean,
  ): Promise<Claimed | undefined> {
    const name = nameOf(mailbox, key, log);
    const names = this.#parts.names.of(mailbox);
    if (wanted !== undefined && entry.hash !== '' && entry.hash !== wanted.hash) return { kind: 'conflict' };
    const connection = await this.#parts.connection();
    const record = () => this.#records.find(connection, names, log, entry, key);
    const reply = await record();
    if (reply !== undefined) return { kind: 'done', reply };
    let state: ClaimState;
    if (entry.boot !== this.#parts.boot) state = await this.#own.askAbout(connection, entry.boot, name, entry.number);
    else if (!isFirst) return { kind: 'running' };
    else if (wanted !== undefined && this.#own.confirm(name, entry.number)) {
      // One that was to keep it from running does not say that it ran: it is passed over.
      if (entry.hash === '') return undefined;
      // Ours, and never said to be: it was not run, and nobody else will.
      const calls = [{ until: wanted.rememberUntil }];
      this.#won(name, log.own.get(entry.slot) ?? this.#slot(log, names, entry.slot, entry.seq, calls, entry.size));
      return mine;
    } else state = 'over';
    if (state === 'running') return { kind: 'elsewhere' };
    // It may have been finished while its claim was read.
    const late = await record();
    if (late !== undefined) return { kind: 'done', reply: late };
    return wanted === undefined || (state === 'over' && !wanted.isRepeatable) ? { kind: 'lost' } : undefined;
  }
}

const unclaimed = (): HostError => new HostError('protocol_error', 'a call has a result and no claim');
