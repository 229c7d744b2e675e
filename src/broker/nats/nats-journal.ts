/**
 * The journal of calls on NATS: one claim for each key, kept by the server and refused by it when there is one; the result
 * beside it, in the stream that the worker's replies come from, so that it is written once.
 * Not here: connections and who serves what (nats-host.ts), handing out (nats-host-link.ts).
 *
 * Invariants: `mine` is said after the server's receipt for a claim of ours, and to one host for each claim; a claim that
 * is there is never overwritten, only removed by one host that then has to win a new one.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { type CallClaim, type CallJournal, type Claimed, messageBytesMax } from '../ports.js';
import { bufferOf, type NatsConnection, type Receipt } from './nats-connection.js';
import { tooLarge } from './nats-failures.js';
import { checkId, type Names } from './nats-names.js';
import type { Sweep } from './nats-sweeper.js';

export interface JournalParts {
  readonly names: Names;
  /** The open connection, or a new one. Rejects with a HostError. */
  readonly connection: () => Promise<NatsConnection>;
  /** Of this host, over restarts. */
  readonly instance: string;
  /** Of this process. */
  readonly boot: string;
  readonly clock: Clock;
  readonly sweep: (what: Sweep, until: Date) => void;
  /** This host ends: nothing more is waited for. */
  readonly isClosed: () => boolean;
}

/** A host that does not answer within this is taken for dead. Wrong, it costs an `outcome_uncertain`, never a second run. */
const pingMs = 1_500;
/** One that is just coming back is given so long. */
const comebackMs = 1_000;
/** How often a claim that vanished while it was looked at is tried anew. */
const roundsMax = 5;
/** A request under way when its key is forgotten could run anew: it is remembered for so much longer. */
const graceMs = 120_000;

/** How long a result waits for the server to come back, and how often it is tried. */
const recordMs = 30_000;
const recordAgainMs = 250;
const unconfirmedMax = 10_000;

/** `over`: it ended without a result, or nobody knows. `never`: it was not run. */
export type ClaimState = 'running' | 'over' | 'never';

interface Running {
  readonly seq: number;
  readonly until: Date;
}

interface Claim {
  readonly instance: string;
  readonly boot: string;
  readonly hash: string;
}

export class NatsJournal implements CallJournal {
  readonly #parts: JournalParts;
  /** What this process claimed and has not finished; bounded by what its service runs at a time. */
  readonly #running = new Map<string, Running | undefined>();
  /** Asked for and not answered: if such a claim is there, it was never run. One that is forgotten counts as lost. */
  readonly #unconfirmed = new Map<string, true>();
  /** Results in the stream that their delivery has not asked for yet; taken by its reply, or dropped with it. */
  readonly #finished = new Map<string, Buffer>();

  constructor(parts: JournalParts) {
    this.#parts = parts;
  }

  async claim(claim: CallClaim): Promise<Claimed> {
    const { mailbox, key } = claim;
    checkId(key);
    const name = nameOf(mailbox, key);
    // From before it is asked for: whoever finds our claim may ask us about it before we have its receipt.
    const isFirst = !this.#running.has(name);
    if (isFirst) this.#running.set(name, undefined);
    try {
      const claimed = await this.#claim(claim, isFirst);
      if (isFirst && claimed.kind !== 'mine') this.#running.delete(name);
      return claimed;
    } catch (error) {
      if (isFirst) this.#running.delete(name);
      throw error;
    }
  }

  async #claim(claim: CallClaim, isFirst: boolean): Promise<Claimed> {
    const { mailbox, key, hash } = claim;
    const { instance, boot, names } = this.#parts;
    const connection = await this.#parts.connection();
    const subject = names.of(mailbox).claims + key;
    const said = JSON.stringify({ instance, boot, hash } satisfies Claim);
    for (let round = 0; round < roundsMax; round++) {
      const receipt = await connection.keep(subject, said).catch((error: unknown) => {
        setBounded(this.#unconfirmed, nameOf(mailbox, key), true, unconfirmedMax);
        throw error;
      });
      if (receipt.kind === 'kept') return this.#mine(claim, receipt.seq);
      if (receipt.kind === 'full') throw full(mailbox, receipt.why);
      const found = await this.#look(connection, claim, isFirst);
      if (found !== undefined) return found;
    }
    throw new HostError('overloaded', `the claim of a call of mailbox '${mailbox}' changes all the time`, {
      execution: 'not_executed',
      hint: 'send it again in a moment, under the same key',
    });
  }

  #mine({ mailbox, key, rememberUntil }: CallClaim, seq: number): Claimed {
    const name = nameOf(mailbox, key);
    this.#unconfirmed.delete(name);
    this.#running.set(name, { seq, until: new Date(rememberUntil.getTime() + graceMs) });
    return { kind: 'mine' };
  }

  /** What another host is told of a claim of ours. Told that it never ran, that host has it: we do not run it any more. */
  stateOf(name: string): ClaimState {
    if (this.#running.has(name)) return 'running';
    return this.#unconfirmed.delete(name) ? 'never' : 'over';
  }

  async finish(mailbox: string, key: string, reply: Buffer): Promise<void> {
    checkId(key);
    const name = nameOf(mailbox, key);
    const running = this.#running.get(name);
    const names = this.#parts.names.of(mailbox);
    try {
      if (reply.length > messageBytesMax) throw tooLarge('reply', reply.length);
      const receipt = await this.#keepRecord(names.records + key, reply);
      if (receipt.kind === 'full') throw full(mailbox, receipt.why);
      if (receipt.kind === 'there') return;
      this.#finished.set(name, reply);
      if (running === undefined) return;
      this.#parts.sweep({ stream: names.replyStream, seq: receipt.seq }, running.until);
      this.#parts.sweep({ stream: names.claimStream, seq: running.seq }, running.until);
    } finally {
      // Over here whatever came of it: a claim of ours without a result is one whose outcome nobody can tell.
      this.#running.delete(name);
    }
  }

  /** A result is worth waiting for a server that is gone for a moment: without it nobody could tell what happened. */
  async #keepRecord(subject: string, reply: Buffer): Promise<Receipt> {
    const { clock, connection, isClosed } = this.#parts;
    const untilMs = clock.nowMs() + recordMs;
    for (;;) {
      try {
        return await (await connection()).keep(subject, reply);
      } catch (error) {
        if (isClosed() || clock.nowMs() >= untilMs) throw error;
      }
      await sleep(clock, recordAgainMs);
    }
  }

  /** Whether this reply is in the stream as the result of its call. Asked once for each result. */
  isKept(mailbox: string, key: string, reply: Buffer): boolean {
    const name = nameOf(mailbox, key);
    const finished = this.#finished.get(name);
    if (finished === undefined) return false;
    this.#finished.delete(name);
    return finished === reply || finished.equals(reply);
  }

  /** Its delivery is over. */
  forget(mailbox: string, key: string): void {
    this.#finished.delete(nameOf(mailbox, key));
  }

  /** What became of a key without wanting it; undefined: nobody claimed it. */
  async outcome(mailbox: string, key: string): Promise<Claimed | undefined> {
    const connection = await this.#parts.connection();
    return this.#look(connection, { mailbox, key }, !this.#running.has(nameOf(mailbox, key)));
  }

  async find(mailbox: string, key: string) {
    const found = await this.outcome(mailbox, key);
    return found?.kind === 'mine' || found?.kind === 'conflict' ? undefined : found;
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
    const name = nameOf(mailbox, key);
    const names = this.#parts.names.of(mailbox);
    const record = () => connection.read(names.replyStream, names.records + key);
    const [claimed, reply] = await Promise.all([connection.read(names.claimStream, names.claims + key), record()]);
    if (claimed === undefined) return undefined;
    const by = readClaim(claimed.body);
    if (wanted !== undefined && by.hash !== wanted.hash) return { kind: 'conflict' };
    if (reply !== undefined) return { kind: 'done', reply: reply.body };
    let state: ClaimState;
    if (by.boot !== this.#parts.boot) state = await this.#askAbout(connection, by, name);
    else if (!isFirst) return { kind: 'running' };
    // Ours, and never said to be: it was not run, and nobody else will.
    else if (wanted !== undefined && this.#unconfirmed.delete(name)) return this.#mine(wanted, claimed.seq);
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

  async #askAbout(connection: NatsConnection, { boot }: Claim, name: string): Promise<ClaimState> {
    if (!bootPattern.test(boot)) return 'over';
    const subject = this.#parts.names.host(boot);
    const ask = async (): Promise<ClaimState | undefined> => {
      try {
        const said = bufferOf((await connection.ask(subject, name, pingMs)).data).toString('latin1');
        return said === 'running' || said === 'never' ? said : 'over';
      } catch {
        return undefined;
      }
    };
    const first = await ask();
    if (first !== undefined) return first;
    await sleep(this.#parts.clock, comebackMs);
    return (await ask()) ?? 'over';
  }
}

/** Of a process: it is a part of a subject. */
export const bootPattern = /^[0-9a-f]{32}$/;

const nameOf = (mailbox: string, key: string): string => `${mailbox}/${key}`;

function readClaim(body: Buffer): Claim {
  try {
    const { instance, boot, hash } = JSON.parse(body.toString()) as Record<string, unknown>;
    if (typeof instance === 'string' && typeof boot === 'string' && typeof hash === 'string')
      return { instance, boot, hash };
  } catch {
    // As below.
  }
  throw new HostError('protocol_error', 'a claim in the journal of calls cannot be read', {
    hint: 'look who else writes to the streams of Hostler',
  });
}

const full = (mailbox: string, why: string): HostError =>
  new HostError('insufficient_storage', `the journal of mailbox '${mailbox}' is full: ${why}`, {
    execution: 'not_executed',
    hint: 'wait until calls are forgotten, or raise the bounds of its streams',
  });
