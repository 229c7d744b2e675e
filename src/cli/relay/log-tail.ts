/** Reads new lines of the log of a host, also after the log was rotated. */
import { closeSync, type FSWatcher, openSync, readSync, statSync, watch } from 'node:fs';

const chunkBytes = 64 * 1024;
const lineCharsMax = 4_096;

export class LogTail {
  readonly #file: string;
  readonly #onLine: (line: string) => void;
  #offset: number;
  #rest = '';
  #watcher: FSWatcher | undefined;

  constructor(file: string, onLine: (line: string) => void) {
    this.#file = file;
    this.#onLine = onLine;
    this.#offset = sizeOf(file);
  }

  /** Reads on every change of the file. If the system cannot watch the file, only calls of `read` read it. */
  follow(): void {
    this.#watcher?.close();
    try {
      this.#watcher = watch(this.#file, { persistent: false }, (event) => {
        this.read();
        // A rotated log is another file.
        if (event === 'rename') this.follow();
      });
      this.#watcher.on('error', () => {});
    } catch {
      this.#watcher = undefined;
    }
  }

  read(): void {
    const size = sizeOf(this.#file);
    if (size < this.#offset) this.#offset = 0;
    if (size === this.#offset) return;
    let file: number;
    try {
      file = openSync(this.#file, 'r');
    } catch {
      return;
    }
    try {
      const bytes = Buffer.allocUnsafe(chunkBytes);
      for (;;) {
        const count = readSync(file, bytes, 0, chunkBytes, this.#offset);
        if (count === 0) return;
        this.#offset += count;
        this.#add(bytes.toString('utf8', 0, count));
      }
    } finally {
      closeSync(file);
    }
  }

  close(): void {
    this.#watcher?.close();
  }

  #add(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = (lines.pop() ?? '').slice(0, lineCharsMax);
    for (const line of lines) this.#onLine(line);
  }
}

const sizeOf = (file: string): number => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
