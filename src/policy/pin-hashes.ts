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

interface Hashed {
  readonly raw: Buffer;
  readonly hash: PinHash | undefined;
}

/** What is hashed in one turn of the event loop: a few milliseconds of work. */
const sliceBytes = 64 * 1024;
/** What an item costs beside its bytes. */
const itemBytes = 512;

export class PinHashes {
  readonly #kind: PinKind;
  readonly #make: (kind: PinKind, raw: Buffer) => PinHash | undefined;
  /** By server and name, of its last list. As large as that list, which is kept anyway. */
  readonly #last = new Map<string, ReadonlyMap<string, Hashed>>();
  /** Made ahead, until their list is judged. */
  readonly #ahead = new WeakMap<Buffer, Hashed>();

  constructor(kind: PinKind, make: (kind: PinKind, raw: Buffer) => PinHash | undefined = pinHash) {
    this.#kind = kind;
    this.#make = make;
  }

  /** Makes those that are missing; undefined when they are so few that it can as well be done later. */
  ahead(server: string, items: readonly PinItem[]): Promise<void> | undefined {
    const missing = items.filter(({ key, raw }) => key !== '' && !this.#known(server, key, raw));
    const cost = missing.reduce((sum, { raw }) => sum + costOf(raw), 0);
    return cost > sliceBytes ? this.#inSlices(missing) : undefined;
  }

  /** Of every name in the list; no hash for one that stands there twice: which of the two is meant, nobody can say. */
  ofList(
    server: string,
    items: readonly PinItem[],
  ): Map<string, { readonly hashes: PinHash | undefined; raw: Buffer }> {
    const listed = new Map<string, { hashes: PinHash | undefined; raw: Buffer }>();
    const last = new Map<string, Hashed>();
    for (const { key, raw } of items) {
      if (key === '') continue;
      if (listed.has(key)) {
        listed.set(key, { hashes: undefined, raw });
        continue;
      }
      const hashed = this.#ahead.get(raw) ??
        this.#known(server, key, raw) ?? { raw, hash: this.#make(this.#kind, raw) };
      this.#ahead.delete(raw);
      last.set(key, hashed);
      listed.set(key, { hashes: hashed.hash, raw });
    }
    this.#last.set(server, last);
    return listed;
  }

  forget(server: string): void {
    this.#last.delete(server);
  }

  async #inSlices(items: readonly PinItem[]): Promise<void> {
    let cost = 0;
    for (const { raw } of items) {
      this.#ahead.set(raw, { raw, hash: this.#make(this.#kind, raw) });
      cost += costOf(raw);
      if (cost < sliceBytes) continue;
      cost = 0;
      await nextTurn();
    }
    // Judging the list is a turn's work of its own.
    if (cost > 0) await nextTurn();
  }

  #known(server: string, key: string, raw: Buffer): Hashed | undefined {
    const hashed = this.#last.get(server)?.get(key);
    return hashed?.raw.equals(raw) ? hashed : undefined;
  }
}

const costOf = (raw: Buffer): number => raw.length + itemBytes;
