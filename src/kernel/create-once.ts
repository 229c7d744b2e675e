/**
 * Creates a file that only its owner can read, with its whole content.
 * Invariant: if several processes create it at the same time, one of them decides its content, and no reader sees a part of it.
 */
import { closeSync, fsyncSync, linkSync, lstatSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { withEditLock } from './edit-lock.js';
import { newId } from './random.js';

/** False: the file exists. */
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
  // Some file systems do not support hard links. A rename replaces a file, so only one process at a time looks and renames.
  return withEditLock(file, () => {
    if (lstatSync(file, { throwIfNoEntry: false })) return false;
    renameSync(draft, file);
    return true;
  });
}

/** The file is there; a draft that stays is no reason to say that it is not. */
function remove(draft: string): void {
  try {
    rmSync(draft, { force: true });
  } catch {
    // Only its owner can read it.
  }
}
