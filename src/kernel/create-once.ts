/**
 * Creates a file that only its owner can read, with its whole content.
 * Invariant: if several processes create it at the same time, one of them decides its content, and no reader sees an incomplete file.
 */
import { closeSync, fsyncSync, linkSync, lstatSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { withEditLock } from './edit-lock.js';
import { newId } from './random.js';

/** Returns false if the file already exists. */
export function createOnce(file: string, text: string): boolean {
  const draft = `${file}.${newId()}`;
  try {
    const descriptor = openSync(draft, 'wx', 0o600);
    try {
      writeSync(descriptor, text);
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    return place(draft, file);
  } finally {
    remove(draft);
  }
}

function place(draft: string, file: string): boolean {
  try {
    linkSync(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
  }
  // Some file systems do not support hard links. A rename replaces a file, so only one process at a time checks and renames.
  return withEditLock(file, () => {
    if (lstatSync(file, { throwIfNoEntry: false })) return false;
    renameSync(draft, file);
    return true;
  });
}

/** A draft that cannot be removed must not change the result of `createOnce`. */
function remove(draft: string): void {
  try {
    rmSync(draft, { force: true });
  } catch {
    // The draft stays. Only its owner can read it.
  }
}
