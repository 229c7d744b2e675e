/**
 * The journal of calls on NATS: one claim for each key, kept by the server and refused by it when there is one; the result
 * beside it, in the stream that the worker's replies come from, so that it is written once.
 * Not here: connections and who serves what (nats-host.ts), handing out (nats-host-link.ts).
 *
 * Invariants: `mine` is said after the server's receipt for a claim of ours, and to one host for each claim; a claim that
 * is there is never overwritten, only removed by one host that then has to win a new one.
 */
import { type Bundle, type CallClaim, type CallJournal, type Claimed, messageBytesMax } from '../ports.js';
import { BundleJournal } from './nats-bundle-journal.js';
import type { BundledRun } from './nats-bundle-records.js';
import { ClaimLog } from './nats-claim-log.js';
import type { NatsConnection } from './nats-connection.js';
import { inDoubt, tooLarge } from './nats-failures.js';
import { checkId } from './nats-names.js';
import {
  type ClaimState,
  claimChanges,
  graceMs,
  type JournalParts,
  journalFull,
  nameOf,
  OwnClaims,
  roundsMax,
  unreadableClaim,
} from './nats-own-claims.js';

/** Of a claim that came alone. */
interface Running {
  readonly seq: number;
  readonly until: Date;
}

interface Claim {
  readonly instance: string;
  readonly boot: string;
  readonly hash: string;
  /** Of the claims of that process. */
  readonly number: string;
}

export class NatsJournal implements CallJournal {
  readonly #parts: JournalParts;
  readonly #own: OwnClaims<Running | BundledRun>;
  readonly #bundles: BundleJournal;

  constructor(parts: JournalParts) {
    this.#parts = parts;
    this.#own = new OwnClaims(parts);
    this.#bundles = new BundleJournal(parts, this.#own as OwnClaims<BundledRun>);
  }

  claim(claim: CallClaim): Promise<Claimed> {
    return claim.bundle instanceof ClaimLog ? this.#bundles.claim(claim, claim.bundle) : this.#claimAlone(claim);
  }

  async #claimAlone(claim: CallClaim): Promise<Claimed> {
    const { mailbox, key } = claim;
    checkId(key);
    const { running } = this.#own;
    const name = nameOf(mailbox, key, undefined);
    // From before it is asked for: whoever finds our claim may ask us about it before we have its receipt.
    const isFirst = !running.has(name);
    if (isFirst) running.set(name, undefined);
    try {
      const claimed = await this.#claim(claim, isFirst);
      if (isFirst && claimed.kind !== 'mine') running.delete(name);
      return claimed;
    } catch (error) {
      if (isFirst) running.delete(name);
      throw error;
    }
  }

  async #claim(claim: CallClaim, isFirst: boolean): Promise<Claimed> {
    const { mailbox, key, hash } = claim;
    const { instance, boot, names } = this.#parts;
    const connection = await this.#parts.connection();
    const subject = names.of(mailbox).claims + key;
    for (let round = 0; round < roundsMax; round++) {
      const number = this.#own.nextNumber();
      const said = JSON.stringify({ instance, boot, hash, number } satisfies Claim);
      const receipt = await connection.keep(subject, said).catch((error: unknown) => {
        this.#own.doubt(nameOf(mailbox, key, undefined), number);
        throw error;
      });
      if (receipt.kind === 'kept') return this.#mine(claim, receipt.seq);
      if (receipt.kind === 'full') throw journalFull(mailbox, receipt.why);
      const found = await this.#look(connection, claim, isFirst).catch((error) => {
        throw inDoubt(error);
      });
      if (found !== undefined) return found;
    }
    throw claimChanges(mailbox);
  }

  #mine({ mailbox, key, rememberUntil }: CallClaim, seq: number): Claimed {
    const name = nameOf(mailbox, key, undefined);
    this.#own.running.set(name, { seq, until: new Date(rememberUntil.getTime() + graceMs) });
    return { kind: 'mine' };
  }

  /** What another host is told of a claim of ours. */
  stateOf(question: string): ClaimState {
    return this.#own.stateOf(question);
  }

  finish(mailbox: string, key: string, reply: Buffer, bundle?: Bundle): Promise<void> {
    return bundle instanceof ClaimLog
      ? this.#bundles.finish(mailbox, key, bundle, reply)
      : this.#finishAlone(mailbox, key, reply);
  }

  async #finishAlone(mailbox: string, key: string, reply: Buffer): Promise<void> {
    checkId(key);
    const name = nameOf(mailbox, key, undefined);
    const running = this.#own.running.get(name) as Running | undefined;
    const names = this.#parts.names.of(mailbox);
    try {
      if (reply.length > messageBytesMax) throw tooLarge('reply', reply.length);
      const receipt = await this.#own.keepRecord(names.records + key, reply);
      if (receipt.kind === 'full') throw journalFull(mailbox, receipt.why);
      if (receipt.kind === 'there') return;
      this.#own.finished.set(name, reply);
      if (running === undefined) return;
      this.#parts.sweep({ stream: names.replyStream, seq: receipt.seq }, running.until);
      this.#parts.sweep({ stream: names.claimStream, seq: running.seq }, running.until);
    } finally {
      // Over here whatever came of it: a claim of ours without a result is one whose outcome nobody can tell.
      this.#own.running.delete(name);
    }
  }

  /** Whether this reply is in the stream as the result of its call. Asked once for each result. */
  isKept(mailbox: string, key: string, reply: Buffer, bundle: Bundle | undefined): boolean {
    const name = nameOf(mailbox, key, bundle);
    const { finished } = this.#own;
    const found = finished.get(name);
    if (found === undefined) return false;
    finished.delete(name);
    return found === reply || found.equals(reply);
  }

  /** Its delivery is over. */
  forget(mailbox: string, key: string, bundle: Bundle | undefined): void {
    if (this.#own.finished.size > 0) this.#own.finished.delete(nameOf(mailbox, key, bundle));
  }

  /** Keeps the reply to a call of a bundle that is not begun, now or ever. False: it is claimed. */
  async close(
    mailbox: string,
    key: string,
    bundle: Bundle | undefined,
    reply: Buffer,
    cameAgain: boolean,
  ): Promise<boolean> {
    return bundle instanceof ClaimLog && this.#bundles.close(mailbox, key, bundle, reply, cameAgain);
  }

  /** What became of a key without wanting it; undefined: nobody claimed it. */
  async outcome(mailbox: string, key: string, bundle?: Bundle): Promise<Claimed | undefined> {
    if (bundle instanceof ClaimLog) return this.#bundles.outcome(mailbox, key, bundle);
    const connection = await this.#parts.connection();
    return this.#look(connection, { mailbox, key }, !this.#own.running.has(nameOf(mailbox, key, undefined)));
  }

  async find(mailbox: string, key: string, about?: Pick<CallClaim, 'bundle'>) {
    const found = await this.outcome(mailbox, key, about?.bundle);
    return found?.kind === 'mine' || found?.kind === 'conflict' ? undefined : found;
  }

  /** Whether a call of that bundle was run, and is over. */
  hasRun(mailbox: string, key: string, bundle: ClaimLog): Promise<boolean> {
    return this.#bundles.hasRun(mailbox, key, bundle);
  }

  /** Removes the claim of a key, so that it may be run anew. For operators, of a key that is `lost`. */
  async giveUp(mailbox: string, key: string): Promise<void> {
    const connection = await this.#parts.connection();
    const names = this.#parts.names.of(mailbox);
    const claimed = await connection.read(names.claimStream, names.claims + key);
    if (claimed !== undefined) await connection.remove(names.claimStream, claimed.seq);
  }

  /** Undefined: there is no claim (any more). `isFirst`: nobody in this process is at it besides who asks. */
  async #look(
    connection: NatsConnection,
    claim: CallClaim | Pick<CallClaim, 'mailbox' | 'key'>,
    isFirst: boolean,
  ): Promise<Claimed | undefined> {
    const { mailbox, key } = claim;
    const wanted = 'hash' in claim ? claim : undefined;
    const name = nameOf(mailbox, key, undefined);
    const names = this.#parts.names.of(mailbox);
    const record = () => connection.read(names.replyStream, names.records + key);
    const [claimed, reply] = await Promise.all([connection.read(names.claimStream, names.claims + key), record()]);
    if (claimed === undefined) return undefined;
    const by = readClaim(claimed.body);
    if (wanted !== undefined && by.hash !== wanted.hash) return { kind: 'conflict' };
    if (reply !== undefined) return { kind: 'done', reply: reply.body };
    let state: ClaimState;
    if (by.boot !== this.#parts.boot) state = await this.#own.askAbout(connection, by.boot, name, by.number);
    else if (!isFirst) return { kind: 'running' };
    // Ours, and never said to be: it was not run, and nobody else will.
    else if (wanted !== undefined && this.#own.confirm(name, by.number)) return this.#mine(wanted, claimed.seq);
    else state = 'over';
    if (state === 'running') return { kind: 'elsewhere' };
    const late = await this.#lost(record);
    if (late.kind !== 'lost' || wanted === undefined || (state === 'over' && !wanted.isRepeatable)) return late;
    // Whoever removes it is one; whoever claims anew may be another one, and again one.
    await connection.remove(names.claimStream, claimed.seq);
    return undefined;
  }

  /** It may have been finished while its claim was read. */
  async #lost(record: () => Promise<{ readonly body: Buffer } | undefined>): Promise<Claimed> {
    const reply = await record();
    return reply === undefined ? { kind: 'lost' } : { kind: 'done', reply: reply.body };
  }
}

function readClaim(body: Buffer): Claim {
  try {
    const { instance, boot, hash, number = '' } = JSON.parse(body.toString()) as Record<string, unknown>;
    const isRead = typeof instance === 'string' && typeof boot === 'string' && typeof hash === 'string';
    if (isRead && typeof number === 'string') return { instance, boot, hash, number };
  } catch {
    // As below.
  }
  throw unreadableClaim();
}
