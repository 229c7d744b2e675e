/**
 * What this process knows of the claims it made, and what it hears from other processes about theirs.
 * Not here: the claims themselves, which are on the server (nats-journal.ts, nats-bundle-journal.ts).
 *
 * Invariant: what another process is told never ran is not run here any more.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import { type Clock, sleep } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { Bundle } from '../ports.js';
import { bufferOf, type NatsConnection, type Receipt } from './nats-connection.js';
import type { Names } from './nats-names.js';
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
export const roundsMax = 5;
/** A request under way when its key is forgotten could run anew: it is remembered for so much longer. */
export const graceMs = 120_000;

/** How long a result waits for the server to come back, and how often it is tried. */
const recordMs = 30_000;
const recordAgainMs = 250;
const unconfirmedMax = 10_000;

/** `over`: it ended without a result, or nobody knows. `never`: it was not run. */
export type ClaimState = 'running' | 'over' | 'never';

export class OwnClaims<Running> {
  /** What this process claimed and has not finished; bounded by what its service runs at a time. */
  readonly running = new Map<string, Running | undefined>();
  /** Results in the stream that their delivery has not asked for yet; taken by its reply, or dropped with it. */
  readonly finished = new Map<string, Buffer>();
  /**
   * Asked for and not answered: if that very claim is there, it was never run. One that is forgotten counts as lost. Each is known
   * by its number: another one of ours, under the same name, may have been run.
   */
  readonly #unconfirmed = new Map<string, true>();
  readonly #parts: JournalParts;
  #claims = 0;

  constructor(parts: JournalParts) {
    this.#parts = parts;
  }

  /** Of a claim that is about to be written: no other one of this process has it. */
  nextNumber(): string {
    return String(++this.#claims);
  }

  /** What another host is told of a claim of ours. Told that it never ran, that host has it: we do not run it any more. */
  stateOf(question: string): ClaimState {
    const end = question.indexOf(' ');
    if (this.running.has(end < 0 ? question : question.slice(0, end))) return 'running';
    return this.#unconfirmed.delete(question) ? 'never' : 'over';
  }

  doubt(name: string, number: string): void {
    setBounded(this.#unconfirmed, questionOf(name, number), true, unconfirmedMax);
  }

  /** True: it was in doubt, and is not any more. */
  confirm(name: string, number: string): boolean {
    return this.#unconfirmed.delete(questionOf(name, number));
  }

  /** What the process that made a claim says of it. */
  async askAbout(connection: NatsConnection, boot: string, name: string, number: string): Promise<ClaimState> {
    if (!bootPattern.test(boot)) return 'over';
    const subject = this.#parts.names.host(boot);
    const ask = async (): Promise<ClaimState | undefined> => {
      try {
        const said = bufferOf((await connection.ask(subject, questionOf(name, number), pingMs)).data).toString(
          'latin1',
        );
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

  /** A result is worth waiting for a server that is gone for a moment: without it nobody could tell what happened. */
  async keepRecord(subject: string, body: Buffer): Promise<Receipt> {
    const { clock, connection, isClosed } = this.#parts;
    const untilMs = clock.nowMs() + recordMs;
    for (;;) {
      try {
        return await (await connection()).keep(subject, body);
      } catch (error) {
        if (isClosed() || clock.nowMs() >= untilMs) throw error;
      }
      await sleep(clock, recordAgainMs);
    }
  }
}

/** Of a process: it is a part of a subject. */
const bootPattern = /^[0-9a-f]{32}$/;

/** Neither has a space in it. */
const questionOf = (name: string, number: string): string => `${name} ${number}`;

/** A key of a bundle is another one than the same key alone. */
export const nameOf = (mailbox: string, key: string, bundle: Bundle | undefined): string =>
  bundle === undefined ? `${mailbox}/${key}` : `${mailbox}/${bundle.id}/${key}`;

export const unreadableClaim = (): HostError =>
  new HostError('protocol_error', 'a claim in the journal of calls cannot be read', {
    hint: 'look who else writes to the streams of Hostler',
  });

export const claimChanges = (mailbox: string): HostError =>
  new HostError('overloaded', `the claim of a call of mailbox '${mailbox}' changes all the time`, {
    execution: 'uncertain',
    hint: 'send it again in a moment, under the same key',
  });

export const journalFull = (mailbox: string, why: string): HostError =>
  new HostError('insufficient_storage', `the journal of mailbox '${mailbox}' is full: ${why}`, {
    execution: 'not_executed',
    hint: 'wait until calls are forgotten, or raise the bounds of its streams',
  });
