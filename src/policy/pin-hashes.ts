/**
 * The fingerprints of what servers list, each made once: a definition whose bytes are those of the list before keeps the one it
 * has. Many are made in slices, ahead of the list being judged, so that nobody waits for a server that lists a lot.
 * Not here: what a fingerprint is (pin-hash.ts), what a list means (pins.ts).
 *
 * Invariants: the fingerprint of an item is always that of its own bytes; making some ahead decides nothing, it is as if the
 * list had come in later. Bytes must not change once they were handed in.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type PinHash, type PinKind, pinHash } from './pin-hash.js';

/** One listed definition; the key is empty when the server gave it no name. */
export interface PinItem {
  readonly key: string;
  readonly raw: Buffer;
}

/** A name's one definition in a list; no hash when it stands there twice or has none. */
export interface Hashed {
  readonly raw: Buffer;
  readonly hashes: PinHash | undefined;
}

type HashedList = ReadonlyMap<string, Hashed>;

/** What is hashed in one turn of the event loop: a few milliseconds of work. */
const sliceBytes = 64 * 1024;
/** Items that are compared and judged in one turn. */
const itemsMax = 1_000;
/** What an item costs beside its bytes. */
const itemBytes = 512;

export class PinHashes {
  readonly #kind: PinKind;
  readonly #make: (kind: PinKind, raw: Buffer) => PinHash | undefined;
  /** By server and name, of its last list. As large as that list, which is kept anyway. */
  readonly #last = new Map<string, HashedList>();
  /** Made ahead, by list, until that is judged. */
  readonly #ahead = new WeakMap<readonly PinItem[], Map<Buffer, Hashed>>();

  constructor(kind: PinKind, make: (kind: PinKind, raw: Buffer) => PinHash | undefined = pinHash) {
    this.#kind = kind;
    this.#make = make;
  }

  /** The hash of one text, whichever list it comes from. */
  of(raw: Buffer): PinHash | undefined {
    return this.#make(this.#kind, raw);
  }

  /** Makes those that are missing; undefined when they are so few that it can as well be done later. */
  ahead(server: string, items: readonly PinItem[]): Promise<void> | undefined {
    const last = this.#last.get(server);
    const missing = items.filter(({ key, raw }) => key !== '' && !known(last, key, raw));
    const cost = missing.reduce((sum, { raw }) => sum + costOf(raw), 0);
    if (cost > sliceBytes) return this.#inSlices(items, missing);
    // To have compared so many is enough for one turn.
    return items.length > itemsMax ? nextTurn() : undefined;
  }

  /** Of every name in the list; no hash for one that stands there twice: which of the two is meant, nobody can say. */
  ofList(server: string, items: readonly PinItem[]): HashedList {
    const last = this.#last.get(server);
    const ahead = this.#ahead.get(items);
    this.#ahead.delete(items);
    const listed = new Map<string, Hashed>();
    const twice = new Set<string>();
    for (const { key, raw } of items) {
      if (key === '') continue;
      if (listed.has(key)) {
        listed.set(key, { raw, hashes: undefined });
        twice.add(key);
      } else listed.set(key, ahead?.get(raw) ?? known(last, key, raw) ?? this.#hashed(raw));
    }
    this.#last.set(server, without(listed, twice));
    return listed;
  }

  forget(server: string): void {
    this.#last.delete(server);
  }

  async #inSlices(items: readonly PinItem[], missing: readonly PinItem[]): Promise<void> {
    const ahead = new Map<Buffer, Hashed>();
    this.#ahead.set(items, ahead);
    let cost = 0;
    for (const { raw } of missing) {
      ahead.set(raw, this.#hashed(raw));
      cost += costOf(raw);
      if (cost < sliceBytes) continue;
      cost = 0;
      await nextTurn();
    }
    // Judging the list is a turn's work of its own.
    if (cost > 0) await nextTurn();
  }

  #hashed(raw: Buffer): Hashed {
    return { raw, hashes: this.#make(this.#kind, raw) };
  }
}

function known(last: HashedList | undefined, key: string, raw: Buffer): Hashed | undefined {
  const hashed = last?.get(key);
  return hashed?.raw.equals(raw) ? hashed : undefined;
}

/** What stood there twice has no hash of its own to be found again. */
function without(listed: HashedList, twice: ReadonlySet<string>): HashedList {
  return twice.size === 0 ? listed : new Map([...listed].filter(([key]) => !twice.has(key)));
}

const costOf = (raw: Buffer): number => raw.length + itemBytes;
