/**
 * Rows that are written now, or, where they are large, in turns of their own: one to make the text of a row, one to write it.
 * Whoever has just read a long list has others wait for one thing at a time, not for all that follows from it.
 * Not here: which row is large (the tables), what is done about one that could not be written (who handed it in).
 *
 * Invariants: a row that waits is what its table holds, for whoever asks here; of two rows in one place the later counts. What
 * must not come before a row that could not be written never does, until another row in its place was. At most `rowsMax` wait:
 * one more is written at once.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

export interface LaterRow {
  /** What it means, for whoever asks before it is written. */
  readonly row: unknown;
  readonly text: () => string;
  readonly write: (text: string) => void;
  readonly onFailed: (error: unknown) => void;
  /** Where this one cannot be written, one that waited before it still is: something is better than nothing. */
  readonly isOlderGood?: boolean;
}

export const rowsMax = 64;
/** What is written at once: less than a millisecond to make, a few to write. */
export const largeBytes = 256 * 1024;

export class LaterWrites {
  readonly #waiting = new Map<string, LaterRow>();
  /** Places whose newest row could not be written; as many as there are servers, at most. */
  readonly #failed = new Set<string>();
  #isDraining = false;

  /** In the place of what waits there. `place`: table and name; `isLarge`: written later. */
  put(place: string, row: LaterRow, isLarge: boolean): void {
    const older = this.#waiting.get(place);
    this.#waiting.delete(place);
    this.#failed.delete(place);
    if (!isLarge || this.#waiting.size >= rowsMax) {
      // It does not count as the newer one: what must not come before that does not.
      if (!this.#write(place, row) && older && row.isOlderGood) this.#waiting.set(place, older);
      return;
    }
    this.#waiting.set(place, row);
    if (this.#isDraining) return;
    this.#isDraining = true;
    void this.#drain();
  }

  /** Now, in the place of what waits there. Throws what `write` throws; then all is as it was. */
  writeOrThrow(place: string, write: () => void): void {
    write();
    this.#failed.delete(place);
    this.#waiting.delete(place);
  }

  /** The row that waits in the place. */
  get(place: string): unknown {
    return this.#waiting.get(place)?.row;
  }

  /** Whether what is on disk is older than what was put there last. */
  isBehind(place: string): boolean {
    return this.#waiting.has(place) || this.#failed.has(place);
  }

  /** What waits there is written now, before what must not come first. False: it could not be, then or before; that was told. */
  finish(place: string): boolean {
    const row = this.#waiting.get(place);
    if (row && !this.#failed.has(place)) this.#write(place, row);
    return !this.#failed.has(place);
  }

  /** Writes all that waits. */
  flush(): void {
    // Not what was written meanwhile, before one that must not come first.
    for (const [place, row] of [...this.#waiting]) if (this.#waiting.get(place) === row) this.#write(place, row);
  }

  async #drain(): Promise<void> {
    for (;;) {
      await nextTurn();
      const [next] = this.#waiting;
      if (!next) break;
      const [place, row] = next;
      const text = this.#attempt(place, row, row.text);
      if (text) {
        await nextTurn();
        // Written meanwhile, or no longer what is to be written.
        if (this.#waiting.get(place) !== row) continue;
        this.#attempt(place, row, () => row.write(text.made));
      }
      if (this.#waiting.get(place) === row) this.#waiting.delete(place);
    }
    this.#isDraining = false;
  }

  #write(place: string, row: LaterRow): boolean {
    this.#waiting.delete(place);
    return this.#attempt(place, row, () => row.write(row.text())) !== undefined;
  }

  /** Undefined: it failed, and that was told. */
  #attempt<T>(place: string, row: LaterRow, run: () => T): { readonly made: T } | undefined {
    try {
      return { made: run() };
    } catch (error) {
      this.#failed.add(place);
      row.onFailed(error);
      return undefined;
    }
  }
}
