/**
 * Requests that were handed out too often: set aside with the reasons, shown to operators, put back by them.
 *
 * Invariants: a request is removed from its queue after it is held here, or, when there is no room, after its worker was told;
 * what is no request is removed either way; one mailbox has its part of the letters, by count, and no more; putting one back twice
 * runs it once, because the journal is asked each time.
 */
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import { compositeKey } from '../../policy/composite-key.js';
import { beganBefore } from '../careful-letters.js';
import type { ReviveOptions } from '../dead-letters.js';
import { errorReply } from '../messages.js';
import { type Claimed, idPattern } from '../ports.js';
import { ClaimLog } from './nats-claim-log.js';
import type { NatsConnection } from './nats-connection.js';
import { type NatsDelivery, requestHead } from './nats-delivery.js';
import type { NatsJournal } from './nats-journal.js';
import type { Names } from './nats-names.js';

/** Handed out so often, a request is set aside. */
export const deliveriesMax = 5;
/** One that somebody still works on is looked at again after this. */
const laterMs = 30_000;
/** More than one request can have. */
const reasonsMax = 8;
const lettersMax = 10_000;
/** The same, of one mailbox; what nobody can read is there to look at, and is much alike. */
const lettersOfOneMax = 1_000;
const unreadableOfOneMax = 100;
/** How many there are of a mailbox is looked up once in so long. */
const countedMs = 1_000;
/** That there is no room is told once in so long. */
const toldAgainMs = 3_600_000;
/** Of what nobody can read so much is kept: it is for people to look at. */
const unreadableBytesMax = 4 * 1024;
/** In the place of an id. */
const unreadable = 'unreadable';
const revivedTtlMs = 300_000;

export interface NatsDeadLetter {
  readonly seq: number;
  readonly mailbox: string;
  readonly id: string;
  readonly sentAtMs: number;
  readonly diedAtMs: number;
  readonly bytes: number;
  readonly reasons: readonly string[];
}

interface Kept {
  readonly seq: number;
  readonly subject: string;
  readonly data?: string;
}

export interface DeadLetterParts {
  readonly names: Names;
  readonly journal: NatsJournal;
  readonly connection: () => Promise<NatsConnection>;
  readonly clock: Clock;
  readonly onProblem: (error: HostError) => void;
}

/** Which bound leaves no room for a letter: that of what nobody can read, that of a mailbox, that of all. */
type Bound = keyof typeof boundOf;
const boundOf = { unreadable: unreadableOfOneMax, mailbox: lettersOfOneMax, all: lettersMax } as const;

/** Letters of one mailbox: as they were counted, and with those that came since. */
interface Count {
  all: number;
  unreadable: number;
}

export class NatsDeadLetters {
  readonly #parts: DeadLetterParts;
  readonly #counts = new Map<string, { readonly counted: Promise<Count>; readonly untilMs: number }>();
  /** When it was told of a mailbox and a bound that there is no room; as many as there are mailboxes, times three. */
  readonly #toldMs = new Map<string, number>();

  constructor(parts: DeadLetterParts) {
    this.#parts = parts;
  }

  /** Of one that was handed out too often, or that is no request at all. Ends it, or gives it back when that cannot be done now. */
  async bury(delivery: NatsDelivery): Promise<void> {
    try {
      await this.#bury(delivery);
    } catch {
      // As long as it is not held here, it stays where it is.
      delivery.giveBack(laterMs);
    }
  }

  async #bury(delivery: NatsDelivery): Promise<void> {
    const { names, clock } = this.#parts;
    const { from, id, fault, body, bundle, sentAt } = delivery;
    const connection = await this.#parts.connection();
    const outcome = fault === undefined ? await this.#outcome(delivery) : undefined;
    if (outcome?.kind === 'running' || outcome?.kind === 'elsewhere') return delivery.giveBack(laterMs);
    if (outcome?.kind === 'done') {
      await delivery.reply(outcome.reply);
      return delivery.ack();
    }
    const reasons = fault === undefined ? await this.#reasons(connection, delivery) : [fault];
    const times = { sentAtMs: sentAt.getTime(), diedAtMs: clock.date().getTime() };
    const head = JSON.stringify({
      ...times,
      reasons,
      bundle: bundle?.id,
      isUnreadable: fault === undefined ? undefined : true,
    });
    // As it would have come alone; of what is no request, the beginning of what came.
    const ttl = fault === undefined ? requestHead((delivery.deadlineAt?.getTime() ?? 0) - times.sentAtMs) : '';
    const shown = fault === undefined ? body : body.subarray(0, unreadableBytesMax);
    const letter = Buffer.concat([Buffer.from(`${head}\n${ttl}`), shown]);
    const subject = names.dead(from.mailbox, fault === undefined ? id : unreadable);
    let full = await this.#reached(connection, from.mailbox, fault !== undefined);
    if (full === undefined && (await connection.keep(subject, letter)).kind === 'full') full = 'all';
    if (full !== undefined) this.#tellFull(from.mailbox, full);
    if (fault === undefined) {
      const said = errorReply(givenUp(outcome !== undefined, full === undefined));
      if (outcome === undefined) await delivery.refuse(...said);
      else await delivery.reply(...said);
    }
    delivery.ack();
  }

  /** Undefined: a place was taken for it, as far as this host can tell; of several hosts, each may be a little over. */
  async #reached(connection: NatsConnection, mailbox: string, isUnreadable: boolean): Promise<Bound | undefined> {
    const nowMs = this.#parts.clock.nowMs();
    let its = this.#counts.get(mailbox);
    if (its === undefined || its.untilMs <= nowMs) {
      its = { counted: this.#count(connection, mailbox), untilMs: nowMs + countedMs };
      this.#counts.set(mailbox, its);
    }
    const count = await its.counted;
    if (count.all >= lettersOfOneMax) return 'mailbox';
    if (isUnreadable && count.unreadable >= unreadableOfOneMax) return 'unreadable';
    count.all++;
    if (isUnreadable) count.unreadable++;
    return undefined;
  }

  async #count(connection: NatsConnection, mailbox: string): Promise<Count> {
    const { names } = this.#parts;
    const { state } = await connection.api<{ state?: { subjects?: Record<string, number> } }>(
      `STREAM.INFO.${names.deadStream}`,
      { subjects_filter: names.dead(mailbox, '*') },
    );
    const found = Object.entries(state?.subjects ?? {});
    const sum = (of: typeof found) => of.reduce((all, [, count]) => all + count, 0);
    const subject = names.dead(mailbox, unreadable);
    return { all: sum(found), unreadable: sum(found.filter(([each]) => each === subject)) };
  }

  #tellFull(mailbox: string, bound: Bound): void {
    const { clock, onProblem } = this.#parts;
    const nowMs = clock.nowMs();
    const place = compositeKey(mailbox, bound);
    if (nowMs < (this.#toldMs.get(place) ?? Number.NEGATIVE_INFINITY) + toldAgainMs) return;
    this.#toldMs.set(place, nowMs);
    onProblem(
      new HostError('insufficient_storage', `dead letters of mailbox '${mailbox}' are not kept: there are too many`, {
        reason: 'dead_letters_full',
        limit: boundOf[bound],
        hint: 'see why its messages die, or who writes what nobody can read, and drop or revive what is there',
      }),
    );
  }

  async #outcome({ from, id, bundle }: NatsDelivery): Promise<Claimed | undefined> {
    try {
      return await this.#parts.journal.outcome(from.mailbox, id, bundle);
    } catch (error) {
      // Nobody will ever read those claims to their end.
      if (isHostError(error) && error.details.reason === 'claims') return { kind: 'lost' };
      throw error;
    }
  }

  /** What hosts said when they gave it back, in order; what is missing there was a host that died or lost its connection. */
  async #reasons(connection: NatsConnection, { from, id }: NatsDelivery): Promise<string[]> {
    const { names } = this.#parts;
    const said: string[] = [];
    for await (const { data } of kept(connection, names.reasonStream, names.reason(from.mailbox, id), reasonsMax))
      said.push(Buffer.from(data ?? '', 'base64').toString());
    return Array.from({ length: deliveriesMax }, (_, at) => {
      const reason = said.find((each) => each.startsWith(`${at + 1}: `))?.slice(`${at + 1}: `.length);
      return reason ?? 'the host that had it died, or lost its connection';
    });
  }

  async list(): Promise<NatsDeadLetter[]> {
    const { names } = this.#parts;
    const letters: NatsDeadLetter[] = [];
    const connection = await this.#parts.connection();
    for await (const each of kept(connection, names.deadStream, `${names.prefix}.dead.>`, lettersMax))
      letters.push(readLetter(each).letter);
    return letters;
  }

  /**
   * Back into its queue as if new. False: it is not there (any more). What ran or still runs is not run again; what a host began
   * that is gone, only if that is said.
   */
  async revive(seq: number, { isForced = false }: ReviveOptions = {}): Promise<boolean> {
    const { names, journal } = this.#parts;
    const connection = await this.#parts.connection();
    const found = await one(connection, names.deadStream, { seq });
    if (found === undefined) return false;
    const { letter, body, bundle, isUnreadable } = readLetter(found);
    const { mailbox, id } = letter;
    if (isUnreadable)
      throw new HostError('invalid_request', `what came from mailbox '${mailbox}' is no request`, {
        execution: 'not_executed',
        hint: 'drop it, or look who writes to that mailbox',
      });
    const box = names.of(mailbox);
    // Its bundle is over and answered all of it; what ran after all, on a host that was taken for dead, is not run alone.
    if (bundle !== undefined) {
      const inBundle = await journal.outcome(mailbox, id, bundle);
      if (inBundle?.kind === 'running' || inBundle?.kind === 'elsewhere') throw notNow(mailbox, 'it runs');
      if (inBundle?.kind === 'lost' && !isForced) throw beganBefore(seq);
      if (inBundle?.kind === 'done' && (await journal.hasRun(mailbox, id, bundle)))
        return connection.remove(names.deadStream, seq);
    }
    const outcome = await journal.outcome(mailbox, id);
    if (outcome?.kind === 'lost') {
      if (!isForced) throw beganBefore(seq);
      await journal.giveUp(mailbox, id);
    }
    const again = Buffer.concat([Buffer.from(requestHead(revivedTtlMs)), body]);
    const receipt = await connection.keep(box.requests + id, again);
    if (receipt.kind === 'full')
      throw new HostError('insufficient_storage', `mailbox '${mailbox}' is full: ${receipt.why}`, {
        hint: 'put it back when some of what waits there has been taken',
      });
    // That of a bundle may be the bundle itself, or a request of another kind under the same id: this one is not in the queue.
    if (receipt.kind === 'there' && bundle !== undefined) throw notNow(mailbox, 'one of the same id waits');
    await connection.remove(names.deadStream, seq);
    return true;
  }

  async drop(seq: number): Promise<boolean> {
    const connection = await this.#parts.connection();
    return connection.remove(this.#parts.names.deadStream, seq);
  }
}

async function one(connection: NatsConnection, stream: string, which: object): Promise<Kept | undefined> {
  const { message } = await connection.api<{ message?: Kept }>(`STREAM.MSG.GET.${stream}`, which);
  return message;
}

async function* kept(connection: NatsConnection, stream: string, subject: string, max: number): AsyncGenerator<Kept> {
  let seq = 1;
  for (let count = 0; count < max; count++) {
    const found = await one(connection, stream, { seq, next_by_subj: subject });
    if (found === undefined) return;
    yield found;
    seq = found.seq + 1;
  }
}

function readLetter({ seq, subject, data }: Kept): {
  letter: NatsDeadLetter;
  body: Buffer;
  bundle: ClaimLog | undefined;
  isUnreadable: boolean;
} {
  const bytes = Buffer.from(data ?? '', 'base64');
  const end = bytes.indexOf(0x0a);
  const { sentAtMs, diedAtMs, reasons, bundle, isUnreadable } = JSON.parse(bytes.subarray(0, end).toString()) as Record<
    string,
    unknown
  >;
  const [mailbox = '', id = ''] = subject.split('.').slice(-2);
  // Past the head of the request itself, which says how long its worker would have waited.
  const body = bytes.subarray(bytes.indexOf(0x0a, end + 1) + 1);
  return {
    body,
    isUnreadable: isUnreadable === true,
    bundle: typeof bundle === 'string' && idPattern.test(bundle) ? new ClaimLog(bundle, new Date(0)) : undefined,
    letter: {
      seq,
      mailbox: mailbox.replaceAll('~', '.'),
      id,
      sentAtMs: Number(sentAtMs),
      diedAtMs: Number(diedAtMs),
      bytes: body.length,
      reasons: Array.isArray(reasons) ? reasons.map((each) => neutraliseLine(String(each), 500)) : [],
    },
  };
}

const notNow = (mailbox: string, why: string): HostError =>
  new HostError('overloaded', `the request of mailbox '${mailbox}' cannot be put back: ${why}`, {
    execution: 'not_executed',
    hint: 'it stays among the dead letters; try again later',
  });

const givenUp = (mayHaveRun: boolean, isHeld: boolean): HostError =>
  new HostError(
    mayHaveRun ? 'outcome_uncertain' : 'overloaded',
    `the request was given up after ${deliveriesMax} deliveries`,
    {
      reason: 'dead_letter',
      execution: mayHaveRun ? 'uncertain' : 'not_executed',
      hint: isHeld
        ? 'an operator of the host sees why in its dead letters, and can put it back'
        : 'the dead letters of the host are full: ask its operator to look at them',
    },
  );
