/**
 * The dead letters that are held, in the order they died, and how much of them each worker has.
 * Not here: rows and bounds (mail-table.ts).
 */
import type { DeadLetter } from '../store-port.js';

export interface Dead {
  readonly letter: DeadLetter;
  /** Of its mail. */
  readonly key: string;
}

/** What one worker sent or should have got. */
interface Part {
  /** Oldest first; never empty. */
  readonly seqs: Set<number>;
  bytes: number;
}

export class DeadIndex {
  readonly #dead = new Map<number, Dead>();
  readonly #parts = new Map<string, Part>();
  #bytes = 0;

  get count(): number {
    return this.#dead.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get(seq: number): Dead | undefined {
    return this.#dead.get(seq);
  }

  all(): DeadLetter[] {
    return [...this.#dead.values()].map(({ letter }) => letter);
  }

  add(dead: Dead): void {
    const { seq, bytes } = dead.letter;
    const owner = ownerOf(dead.letter);
    const part = this.#parts.get(owner) ?? { seqs: new Set<number>(), bytes: 0 };
    part.seqs.add(seq);
    part.bytes += bytes;
    this.#bytes += bytes;
    this.#parts.set(owner, part);
    this.#dead.set(seq, dead);
  }

  remove(seq: number): void {
    const dead = this.#dead.get(seq);
    if (dead === undefined) return;
    const { letter } = dead;
    const part = this.#parts.get(ownerOf(letter));
    this.#dead.delete(seq);
    this.#bytes -= letter.bytes;
    if (part === undefined) return;
    part.seqs.delete(seq);
    part.bytes -= letter.bytes;
    if (part.seqs.size === 0) this.#parts.delete(ownerOf(letter));
  }

  /** Of whoever has most: what one worker fills is not the others' too. */
  oldestOfMost(by: 'count' | 'bytes'): DeadLetter | undefined {
    let most: Part | undefined;
    let mostOf = -1;
    for (const part of this.#parts.values()) {
      const its = by === 'count' ? part.seqs.size : part.bytes;
      if (its > mostOf) [most, mostOf] = [part, its];
    }
    const [oldest] = most?.seqs ?? [];
    return oldest === undefined ? undefined : this.#dead.get(oldest)?.letter;
  }

  clear(): void {
    this.#dead.clear();
    this.#parts.clear();
    this.#bytes = 0;
  }
}

const ownerOf = ({ kind, from, to }: DeadLetter): string => (kind === 'request' ? from.mailbox : to);
