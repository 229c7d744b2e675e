/**
 * The log of a host without a terminal: `host.log` in the data directory, for its user alone.
 * Invariant: the log and its predecessor `host.log.1` have at most `bytesMax` each, except for one line.
 */
import { closeSync, copyFileSync, fstatSync, ftruncateSync, openSync, statSync, writeSync } from 'node:fs';

const bytesMax = 5 * 1024 * 1024;

export class LogFile {
  readonly #file: string;
  readonly #bytesMax: number;
  #descriptor: number | undefined;
  #bytes = 0;

  constructor(file: string, max = bytesMax) {
    this.#file = file;
    this.#bytesMax = max;
    this.#open();
  }

  /** If the log cannot be written, the text is lost and the host continues. */
  readonly write = (text: string): void => {
    if (this.#bytes > 0 && this.#bytes + Buffer.byteLength(text) > this.#bytesMax) this.#rotate();
    if (this.#descriptor === undefined) return;
    try {
      this.#bytes += writeSync(this.#descriptor, text);
    } catch {
      // No space is left.
    }
  };

  close(): void {
    if (this.#descriptor !== undefined) closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }

  #rotate(): void {
    const descriptor = this.#descriptor;
    if (descriptor === undefined) return;
    try {
      // Another program has renamed or removed the log.
      if (!this.#isAtPath(descriptor)) {
        this.close();
        return this.#open();
      }
      this.#keepPredecessor();
      ftruncateSync(descriptor);
      this.#bytes = 0;
    } catch {
      // Without truncation the log has no bound.
      this.#descriptor = undefined;
    }
  }

  #isAtPath(descriptor: number): boolean {
    const [own, found] = [fstatSync(descriptor), statSync(this.#file, { throwIfNoEntry: false })];
    return own.ino === found?.ino && own.dev === found.dev;
  }

  #keepPredecessor(): void {
    try {
      // Copied, not renamed: Node writes errors to this file through descriptors that the shell opened, which would follow a rename.
      copyFileSync(this.#file, `${this.#file}.1`);
    } catch {
      // No space is left.
    }
  }

  #open(): void {
    try {
      this.#descriptor = openSync(this.#file, 'a', 0o600);
      this.#bytes = fstatSync(this.#descriptor).size;
    } catch {
      this.#descriptor = undefined;
    }
  }
}
