import { existsSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** A new folder, in memory where the system has one: waiting for the disk can take most of the time of a test with a durable store. */
export const memoryFolder = (prefix: string): string =>
  mkdtempSync(path.join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), prefix));
