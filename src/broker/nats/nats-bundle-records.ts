/**
 * Records of calls that came in bundles: results that end in one turn of the loop are kept as one message, which is also what their
 * worker gets, and found again by the claim they belong to.
 * Not here: who may run a call (nats-bundle-journal.ts), what a claim looks like (nats-claim-log.ts).
 *
 * Invariants: a call whose result could not be kept is over here all the same; what is written while records are read is not
 * missed by whoever asks afterwards.
 */
import { bundleBytesMax, readResults, writeResults } from './nats-bundle.js';
import type { ClaimEntry, ClaimLog, ClaimSlot, RecordRead, Result } from './nats-claim-log.js';
import type { NatsConnection, Receipt } from './nats-connection.js';
import type { MailboxNames } from './nats-names.js';
import { type JournalParts, journalFull, type OwnClaims } from './nats-own-claims.js';

export interface BundledRun {
  readonly slot: ClaimSlot;
}

export class BundleRecords {
  readonly #parts: JournalParts;
  readonly #own: OwnClaims<BundledRun>;

  constructor(parts: JournalParts, own: OwnClaims<BundledRun>) {
    this.#parts = parts;
    this.#own = own;
  }

  /** What became of a call, as the record of that claim has it. */
  async find(
    connection: NatsConnection,
    names: MailboxNames,
    log: ClaimLog,
    { slot, size }: ClaimEntry,
    key: string,
  ): Promise<Buffer | undefined> {
    const reading = log.reads.get(slot) ?? this.#read(connection, names, log, slot, size);
    reading.keys.add(key);
    return (await reading.replies).get(key);
  }

  /** For all who ask in this turn of the loop, and nobody later: what is written meanwhile must not be missed. */
  #read(connection: NatsConnection, names: MailboxNames, log: ClaimLog, slot: number, size: number): RecordRead {
    const keys = new Set<string>();
    const replies = new Promise<void>((resolve) => setImmediate(resolve)).then(async () => {
      log.reads.delete(slot);
      const found = new Map<string, Buffer>();
      // One after the other: all at once they may be more than anybody can hold. Each has at least one result, and there may be
      // gaps: one of them may still be on its way.
      for (let n = 0; n < size && found.size < keys.size; n++) {
        const record = await connection.read(names.replyStream, recordSubject(names, log, slot, n));
        for (const { id, body } of (record && readResults(record.body)) ?? []) if (keys.has(id)) found.set(id, body);
      }
      return found;
    });
    const reading = { keys, replies };
    log.reads.set(slot, reading);
    return reading;
  }

  /** Together with what else ends in this turn of the loop. */
  keep(mailbox: string, slot: ClaimSlot, result: Result): void {
    if (slot.results.push(result) === 1) setImmediate(() => this.#keepAll(mailbox, slot));
  }

  #keepAll(mailbox: string, slot: ClaimSlot): void {
    const { results } = slot;
    slot.results = [];
    let bytes = 0;
    let first = 0;
    results.forEach(({ body }, at) => {
      if (at > first && bytes + body.length > bundleBytesMax) {
        void this.#keepSome(mailbox, slot, results.slice(first, at));
        first = at;
        bytes = 0;
      }
      bytes += body.length;
    });
    void this.#keepSome(mailbox, slot, first === 0 ? results : results.slice(first));
  }

  async #keepSome(mailbox: string, slot: ClaimSlot, results: readonly Result[]): Promise<void> {
    const { running, finished } = this.#own;
    const { sweep } = this.#parts;
    const { names, until, log } = slot;
    try {
      const receipt = await this.#keepRecord(slot, results);
      if (receipt.kind === 'full') throw journalFull(mailbox, receipt.why);
      slot.left -= results.length;
      if (receipt.kind === 'kept') sweep({ stream: names.replyStream, seq: receipt.seq }, until);
      if (slot.left <= 0) {
        sweep({ stream: names.claimStream, seq: slot.seq }, until);
        log.own.delete(slot.slot);
      }
      for (const { name, body, resolve } of results) {
        finished.set(name, body);
        running.delete(name);
        resolve();
      }
    } catch (error) {
      // Over here whatever came of it: a claim of ours without a result is one whose outcome nobody can tell.
      for (const { name, reject } of results) {
        running.delete(name);
        reject(error);
      }
    }
  }

  async #keepRecord(slot: ClaimSlot, results: readonly Result[]): Promise<Receipt> {
    const { names, log } = slot;
    const body = writeResults(results);
    for (;;) {
      const subject = recordSubject(names, log, slot.slot, slot.nextRecord++);
      const receipt = await this.#own.keepRecord(subject, body);
      if (receipt.kind !== 'there') return receipt;
      // Ours, whose receipt was lost; or one of before we lost count.
      const found = await (await this.#parts.connection()).read(names.replyStream, subject);
      if (found?.body.equals(body)) return { kind: 'kept', seq: found.seq };
    }
  }
}

const recordSubject = (names: MailboxNames, log: ClaimLog, slot: number, record: number): string =>
  `${names.bundleRecords}${log.id}.${slot}-${record}`;
