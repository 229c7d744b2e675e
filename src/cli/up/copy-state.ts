/**
 * Copies disabled items and pins for a process that serves its client without the lock of the data directory: it must obey them too.
 * Invariants: the data directory is only read. A file that exists and cannot be read, or that changes during each try, is an
 * error: without it, tools that are disabled or blocked would pass.
 */
import { copyFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { HostError } from '../../kernel/errors.js';

/** The database and its log belong together, so all are copied again if one has changed. */
const names = ['disabled.json', 'state.db', 'state.db-wal'];
const triesMax = 10;

export function copyState(from: string, to: string): void {
  for (let tries = 0; tries < triesMax; tries++) {
    const before = versionsOf(from);
    for (const name of names) copy(path.join(from, name), path.join(to, name));
    if (versionsOf(from) === before) return;
  }
  throw unreadable(path.join(from, 'state.db'), 'another process keeps changing it');
}

function versionsOf(folder: string): string {
  return names.map((name) => versionOf(path.join(folder, name))).join();
}

function versionOf(file: string): string {
  try {
    const facts = statSync(file, { bigint: true, throwIfNoEntry: false });
    return facts ? `${facts.ino}:${facts.size}:${facts.mtimeNs}` : '';
  } catch (error) {
    throw unreadable(file, String((error as NodeJS.ErrnoException).code));
  }
}

function copy(from: string, to: string): void {
  try {
    copyFileSync(from, to);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ENOTDIR') throw unreadable(from, String(code));
  }
}

const unreadable = (file: string, why: string): HostError =>
  new HostError('invalid_spec', `${file} cannot be read (${why}), so disabled and blocked tools are unknown`, {
    ...{ field: '--data-dir', reason: 'state_unreadable' },
    hint: 'let this process read it, or choose another folder with --data-dir',
  });
