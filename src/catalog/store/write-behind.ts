/**
 * Write-behind queue of state.db: small entries are written at once, large ones step by step in later turns of the event loop.
 * Not here: the choice between small and large, and the SQL of a step (the tables).
 *
 * Invariants: readers in this process see a queued entry as stored. A newer entry replaces a queued one with the same key. An
 * entry that depends on another is not written if the other failed. At most `queuedMax` entries wait.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

export interface PendingEntry {
  /** Value for readers until the entry is written. */
  readonly value: unknown;
  readonly write: () => Iterator<undefined, void>;
  readonly onFailed: (error: unknown) => void;
  /** True: if this entry cannot be written, the entry that it replaces is written instead. */
  readonly fallsBackToOlder?: boolean;
}

export const queuedMax = 64;
/** Entries above this size are queued: making and writing the text would take several milliseconds. */
export const largeBytes = 256 * 1024;

export class WriteBehind {
  readonly #queue = new Map<string, PendingEntry>();
  /** Keys whose newest entry could not be written; at most one per server and table. */
  readonly #failed = new Set<string>();
  #current: { readonly entry: PendingEntry; readonly steps: Iterator<undefined, void> } | undefined;
  #isDraining = false;

  put(key: string, entry: PendingEntry, isLarge: boolean): void {
    const older = this.#queue.get(key);
    this.#queue.delete(key);
    this.#failed.delete(key);
    if (!isLarge || this.#queue.size >= queuedMax) {
      // The newer entry still counts as failed, so `finish` returns false.
      if (!this.#writeAll(key, entry) && older && entry.fallsBackToOlder) this.#queue.set(key, older);
      return;
    }
    this.#queue.set(key, entry);
    if (this.#isDraining) return;
    this.#isDraining = true;
    void this.#drain();
  }

  /** Writes now and drops the queued entry. When it throws, nothing has changed. */
  writeOrThrow(key: string, write: () => Iterator<undefined, void>): void {
    runAll(write());
    this.#failed.delete(key);
    this.#queue.delete(key);
  }

  get(key: string): unknown {
    return this.#queue.get(key)?.value;
  }

  /** True: the newest entry of this key is not on disk. */
  isBehind(key: string): boolean {
    return this.#queue.has(key) || this.#failed.has(key);
  }

  /** Writes the queued entry before an entry that depends on it. False: the write failed, now or earlier, and was reported. */
  finish(key: string): boolean {
    const entry = this.#queue.get(key);
    if (entry && !this.#failed.has(key)) this.#writeAll(key, entry);
    return !this.#failed.has(key);
  }

  /** Writes the queued entry now. Afterwards no entry of this key waits. */
  settle(key: string): void {
    const entry = this.#queue.get(key);
    if (entry) this.#writeAll(key, entry);
  }

  flush(): void {
    // Writing one entry may have finished another (`finish`).
    for (const [key, entry] of [...this.#queue]) if (this.#queue.get(key) === entry) this.#writeAll(key, entry);
  }

  async #drain(): Promise<void> {
    for (;;) {
      await nextTurn();
      const [next] = this.#queue;
      if (!next) break;
      this.#step(...next);
    }
    this.#isDraining = false;
  }

  #step(key: string, entry: PendingEntry): void {
    const isWritten = this.#attempt(key, entry, () => {
      if (this.#current?.entry !== entry) this.#current = { entry, steps: entry.write() };
      return this.#current.steps.next().done === true;
    });
    if (isWritten === false) return;
    this.#current = undefined;
    if (this.#queue.get(key) === entry) this.#queue.delete(key);
  }

  #writeAll(key: string, entry: PendingEntry): boolean {
    this.#queue.delete(key);
    const steps = this.#current?.entry === entry ? this.#current.steps : undefined;
    this.#current = undefined;
    return this.#attempt(key, entry, () => runAll(steps ?? entry.write())) !== undefined;
  }

  /** Undefined: it failed, which was reported. */
  #attempt<T>(key: string, entry: PendingEntry, run: () => T): T | undefined {
    try {
      return run();
    } catch (error) {
      this.#failed.add(key);
      entry.onFailed(error);
      return undefined;
    }
  }
}

/** Returns true, because `#attempt` returns undefined for a failure. */
function runAll(steps: Iterator<undefined, void>): true {
  while (!steps.next().done);
  return true;
}
