/**
 * Who runs which calls of a bundle: claims under the subjects `<bundle>.0`, `<bundle>.1` and so on, each once, so that whoever
 * writes one has seen all before it. Of two that name the same call the later one counts.
 * Not here: who may write another one for the same call (nats-bundle-journal.ts).
 *
 * Invariants: what was read stays true: a claim is removed only after the end of every call of its bundle; no more is remembered
 * than the calls of the bundle, and no more than `slotsMax` claims are read.
 */
import { HostError } from '../../kernel/errors.js';
import type { Bundle } from '../ports.js';
import { bundleCallsMax } from './nats-bundle.js';
import type { NatsConnection } from './nats-connection.js';
import type { MailboxNames } from './nats-names.js';
import { unreadableClaim } from './nats-own-claims.js';

/** More than all calls of a bundle can have, each claimed by itself and several times over. */
const slotsMax = 256;

/** Of a call, as the newest claim that names it says. */
export interface ClaimEntry {
  /** The number of that claim, and of its message. */
  readonly slot: number;
  readonly seq: number;
  /** How many calls it is for. */
  readonly size: number;
  readonly boot: string;
  /** Of the claims of that process. */
  readonly number: string;
  /** Empty: it was answered without being run. */
  readonly hash: string;
}

/** A claim of ours, and the results of its calls on their way into the stream. */
export class ClaimSlot {
  /** Calls without a result. */
  left: number;
  /** The number of the next record. */
  nextRecord = 0;
  /** Of this turn of the loop. */
  results: Result[] = [];

  constructor(
    readonly log: ClaimLog,
    readonly names: MailboxNames,
    readonly slot: number,
    readonly seq: number,
    readonly until: Date,
    size: number,
  ) {
    this.left = size;
  }
}

export interface Result {
  readonly id: string;
  readonly name: string;
  readonly body: Buffer;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** For all who ask in one turn of the loop. */
export interface RecordRead {
  readonly keys: Set<string>;
  readonly replies: Promise<ReadonlyMap<string, Buffer>>;
}

/** Whoever wants to claim a call hears one of three things. */
export interface Wanted {
  readonly key: string;
  readonly name: string;
  readonly hash: string;
  readonly until: Date;
  /** The claim that may be passed over; -1: none. */
  overrides: number;
  rounds: number;
  won(slot: ClaimSlot): void;
  taken(entry: ClaimEntry): void;
  failed(error: unknown): void;
}

export class ClaimLog implements Bundle {
  /** How much of it was read; the next claim has this number. */
  slots = 0;
  wanted: Wanted[] = [];
  isWriting = false;
  /** Those of our own that are not over, by their number. */
  readonly own = new Map<number, ClaimSlot>();
  /** Records that are about to be read, by the number of their claim. */
  readonly reads = new Map<number, RecordRead>();
  readonly #entries = new Map<string, ClaimEntry>();

  constructor(
    readonly id: string,
    /** The latest of its calls. */
    readonly deadlineAt: Date,
    /** Of its calls; undefined where there is no bundle at hand, only its name. */
    readonly ids?: ReadonlySet<string>,
  ) {}

  entryOf(key: string): ClaimEntry | undefined {
    return this.#entries.get(key);
  }

  subjectOf(names: MailboxNames, slot: number): string {
    return `${names.claims}${this.id}.${slot}`;
  }

  /** The claim of this number is there. */
  add(
    slot: number,
    seq: number,
    { boot, number }: Pick<ClaimEntry, 'boot' | 'number'>,
    calls: readonly { readonly key: string; readonly hash: string }[],
  ): void {
    if (slot !== this.slots) return;
    this.slots++;
    for (const { key, hash } of calls)
      if (this.ids?.has(key) !== false) this.#entries.set(key, { slot, seq, size: calls.length, boot, number, hash });
  }

  /** Rejects what has more claims than anybody needs. */
  requireRoom(): void {
    if (this.slots >= slotsMax) throw tooManyClaims();
  }

  /** Reads what was written since. */
  async readOn(connection: NatsConnection, names: MailboxNames): Promise<void> {
    for (;;) {
      const slot = this.slots;
      this.requireRoom();
      const found = await connection.read(names.claimStream, this.subjectOf(names, slot));
      if (found === undefined) return;
      const { by, calls } = readSlot(found.body);
      this.add(slot, found.seq, by, calls);
    }
  }
}

const tooManyClaims = (): HostError =>
  new HostError('overloaded', `a bundle has ${slotsMax} claims or more`, {
    ...{ reason: 'claims', limit: slotsMax, execution: 'uncertain' },
    hint: 'look who else writes to the streams of Hostler',
  });

/** Keys are names (ports.ts). Hashes beside them in a list: a key may be any word, also one that means something to an object. */
export function writeSlot(
  instance: string,
  { boot, number }: Pick<ClaimEntry, 'boot' | 'number'>,
  calls: readonly Pick<Wanted, 'key' | 'hash'>[],
): string {
  let listed = '';
  for (const { key, hash } of calls) listed += `${listed === '' ? '' : ','}"${key}",${JSON.stringify(hash)}`;
  return `{"instance":${JSON.stringify(instance)},"boot":"${boot}","number":"${number}","calls":[${listed}]}`;
}

function readSlot(body: Buffer): {
  by: Pick<ClaimEntry, 'boot' | 'number'>;
  calls: { key: string; hash: string }[];
} {
  const calls: { key: string; hash: string }[] = [];
  try {
    const { boot, number = '', calls: told } = JSON.parse(body.toString()) as Record<string, unknown>;
    if (typeof boot !== 'string' || typeof number !== 'string' || !Array.isArray(told) || told.length % 2 === 1)
      throw unreadableClaim();
    for (let at = 0; at < told.length; at += 2) {
      const [key, hash] = [told[at], told[at + 1]] as unknown[];
      if (typeof key !== 'string' || typeof hash !== 'string') throw unreadableClaim();
      calls.push({ key, hash });
    }
    if (calls.length > bundleCallsMax) throw unreadableClaim();
    return { by: { boot, number }, calls };
  } catch {
    throw unreadableClaim();
  }
}
