/**
 * Creates a file that only its owner can read, with its whole content.
 * Invariant: if several processes create it at the same time, one of them decides its content, and no reader sees a part of it.
 */
import { closeSync, constants, copyFileSync, fsyncSync, linkSync, openSync, rmSync, writeSync } from 'node:fs';
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
    place(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
}

/** Not a rename, which would replace a file that another process has created since. */
function place(draft: string, file: string): void {
  try {
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw error;
    // Some file systems do not support hard links.
    copyFileSync(draft, file, constants.COPYFILE_EXCL);
  }
}
