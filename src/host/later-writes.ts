/**
 * Rows that are large, written in turns of their own: one to make the text of a row, one to write it. Whoever has just read a
 * long list has others wait for one thing at a time, not for all that follows from it.
 * Not here: which row is large (the tables), what is done about one that could not be written (who handed it in).
 *
 * Invariants: a row that waits is what its table holds, for whoever asks here; of two rows in one place the later counts. At
 * most `rowsMax` wait: one more is written at once.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

export interface LaterRow {
  /** What it means, for whoever asks before it is written. */
  readonly row: unknown;
  readonly text: () => string;
  readonly write: (text: string) => void;
  readonly onFailed: (error: unknown) => void;
}

export const rowsMax = 64;
/** What is written at once: less than a millisecond to make, a few to write. */
export const largeBytes = 256 * 1024;

export class LaterWrites {
  readonly #waiting = new Map<string, LaterRow>();
  #isDraining = false;

  /** `place`: table and name. */
  put(place: string, row: LaterRow): void {
    this.#waiting.delete(place);
    if (this.#waiting.size >= rowsMax) {
      finish(row);
      return;
    }
    this.#waiting.set(place, row);
    if (this.#isDraining) return;
    this.#isDraining = true;
    void this.#drain();
  }

  /** The row that waits in the place. */
  get(place: string): unknown {
    return this.#waiting.get(place)?.row;
  }

  /** Another row has taken the place. */
  drop(place: string): void {
    this.#waiting.delete(place);
  }

  /** Writes all that waits. */
  flush(): void {
    const rows = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const row of rows) finish(row);
  }

  async #drain(): Promise<void> {
    for (;;) {
      await nextTurn();
      const [next] = this.#waiting;
      if (!next) break;
      const [place, row] = next;
      const text = attempt(row, row.text);
      if (text) {
        await nextTurn();
        // Written meanwhile, or no longer what is to be written.
        if (this.#waiting.get(place) !== row) continue;
        attempt(row, () => row.write(text.made));
      }
      if (this.#waiting.get(place) === row) this.#waiting.delete(place);
    }
    this.#isDraining = false;
  }
}

function finish(row: LaterRow): void {
  attempt(row, () => row.write(row.text()));
}

/** Undefined: it failed, and that was told. */
function attempt<T>(row: LaterRow, run: () => T): { readonly made: T } | undefined {
  try {
    return { made: run() };
  } catch (error) {
    row.onFailed(error);
    return undefined;
  }
}
