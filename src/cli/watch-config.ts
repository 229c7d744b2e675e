/**
 * Tells when the configuration file was saved, also by editors that write another file and rename it.
 * Not here: what becomes of a new configuration (up.ts).
 *
 * Invariants: one save is told once, after the file has been quiet for a moment; a text that is the same as before is no save.
 */
import { type FSWatcher, readFileSync, statSync, watch } from 'node:fs';
import path from 'node:path';
import type { Clock } from '../kernel/clock.js';

export interface WatchOptions {
  readonly file: string;
  readonly clock: Clock;
  readonly onChange: () => void;
  /** It cannot be watched, or not any more. */
  readonly onProblem: (error: unknown) => void;
}

const quietMs = 200;

/** Returns what ends it. */
export function watchConfig({ file, clock, onChange, onProblem }: WatchOptions): () => void {
  let seen = contentOf(file);
  let cancel = () => {};
  const look = () => {
    const now = contentOf(file);
    // A file that is gone is about to be written, or was deleted by mistake: neither changes anything.
    if (now === undefined || now === seen) return;
    seen = now;
    onChange();
  };
  const stirred = () => {
    cancel();
    cancel = clock.at(clock.nowMs() + quietMs, look);
  };
  let watcher: FSWatcher | undefined;
  try {
    // The folder and not the file: a file that is replaced by renaming is another one.
    watcher = watch(path.dirname(path.resolve(file)), { persistent: false }, stirred);
    watcher.on('error', onProblem);
  } catch (error) {
    onProblem(error);
  }
  return () => {
    cancel();
    watcher?.close();
  };
}

/** Larger ones are refused when they are read; until then their time of change stands for them. */
const comparedBytesMax = 4 * 1024 * 1024;

function contentOf(file: string): string | undefined {
  try {
    const { size, mtimeMs } = statSync(file);
    return size > comparedBytesMax ? `${size} ${mtimeMs}` : readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
