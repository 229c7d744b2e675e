/**
 * Room on the disk that is ours before we need it: a file that is given up when the disk is full, so that what ends something
 * can still be written down.
 *
 * Invariants: it is either whole or not there; it is made again only where half as much room again is left beside it, so that a disk
 * at the brink is not filled by us.
 */

import { randomFillSync } from 'node:crypto';
import { chmodSync, closeSync, openSync, rmSync, statfsSync, statSync, writeSync } from 'node:fs';
import path from 'node:path';

const chunkBytes = 1024 * 1024;

export class ReserveFile {
  readonly #file: string;
  readonly #bytes: number;

  constructor(file: string, bytes: number) {
    this.#file = file;
    this.#bytes = bytes;
  }

  get isThere(): boolean {
    const facts = statSync(this.#file, { throwIfNoEntry: false });
    // A file with holes would reserve nothing.
    return facts !== undefined && facts.size === this.#bytes && facts.blocks * 512 >= this.#bytes;
  }

  /** False when there is no room. */
  make(): boolean {
    if (this.isThere) return true;
    this.giveUp();
    const { bavail, bsize } = statfsSync(path.dirname(this.#file));
    if (bavail * bsize < 1.5 * this.#bytes) return false;
    // Not zeros: some file systems keep no room for those.
    const chunk = randomFillSync(Buffer.allocUnsafe(Math.min(chunkBytes, this.#bytes)));
    const descriptor = openSync(this.#file, 'wx', 0o600);
    try {
      for (let at = 0; at < this.#bytes; )
        at += writeSync(descriptor, chunk, 0, Math.min(chunk.length, this.#bytes - at));
    } catch (error) {
      this.giveUp();
      if (isNoRoom(error)) return false;
      throw error;
    } finally {
      closeSync(descriptor);
    }
    chmodSync(this.#file, 0o600);
    return true;
  }

  giveUp(): void {
    rmSync(this.#file, { force: true });
  }
}

const isNoRoom = (error: unknown): boolean =>
  ['ENOSPC', 'EDQUOT'].includes(String((error as NodeJS.ErrnoException).code));
