/**
 * Makes a folder and the missing folders above it. Only their owner can open them.
 * Invariant: always returns or throws. Node's `recursive` never returns for a folder in which nothing can be created, such as one
 * below /proc.
 */
import { mkdirSync, statSync } from 'node:fs';
import path from 'node:path';

export const isFolder = (file: string): boolean => statSync(file, { throwIfNoEntry: false })?.isDirectory() === true;

export function makeFolders(folder: string): void {
  if (isFolder(folder)) return;
  const parent = path.dirname(folder);
  // The parent of a root is the root itself. A root can be missing: a drive on Windows.
  if (parent !== folder) makeFolders(parent);
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // Another process may have made the folder meanwhile.
    if (!isFolder(folder)) throw error;
  }
}
