/**
 * Replaces a file atomically: writes a new file beside it and renames it. A reader sees the old or the new content, even after a crash.
 * `write` gets the descriptor of the new file, which only its owner can read.
 */
import { closeSync, fsyncSync, openSync, renameSync, rmSync } from 'node:fs';

export function replaceFile(file: string, beside: string, write: (descriptor: number) => void): void {
  const made = openSync(beside, 'wx', 0o600);
  try {
    try {
      write(made);
      fsyncSync(made);
    } finally {
      closeSync(made);
    }
    renameSync(beside, file);
  } catch (error) {
    rmSync(beside, { force: true });
    throw error;
  }
}
