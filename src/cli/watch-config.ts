/**
 * Tells when the configuration file was saved, also by editors that write another file and rename it, and where the file is a
 * link, or lies behind one, also when that is led elsewhere.
 * Not here: what becomes of a new configuration (up.ts).
 *
 * Invariants: one save is told once, after the file has been quiet for a moment, but however busy it is not much later than
 * that; a text that is the same as before is no save; other files in its folder cost nothing.
 */
import { lstatSync, readFileSync, readlinkSync, statSync, watch } from 'node:fs';
import path from 'node:path';
import type { Clock } from '../kernel/clock.js';

/** Tells the names that stir in a folder; some systems do not say which. Throws when it cannot be watched. */
export type WatchFolder = (
  folder: string,
  told: (name: string | null) => void,
  onProblem: (error: unknown) => void,
) => { close(): void };

export interface WatchOptions {
  readonly file: string;
  readonly clock: Clock;
  /** As `contentOf` read it before the configuration was; what was saved since then is a save too. */
  readonly since?: string | undefined;
  readonly onChange: () => void;
  /** It cannot be watched, or not any more. */
  readonly onProblem: (error: unknown) => void;
  readonly watchFolder?: WatchFolder;
}

const quietMs = 200;
const delayMaxMs = 2_000;
const linksMax = 40;

/** Returns what ends it. */
export function watchConfig(options: WatchOptions): () => void {
  const watching = new ConfigWatch(options);
  return () => watching.end();
}

class ConfigWatch {
  readonly #options: WatchOptions;
  /** By folder. */
  readonly #watchers = new Map<string, { close(): void }>();
  /** The names in each folder that lead to the file. */
  #names: ReadonlyMap<string, ReadonlySet<string>> = new Map();
  #seen: string | undefined;
  #stirredAtMs: number | undefined;
  #cancel = () => {};

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#seen = options.since ?? contentOf(options.file);
    this.#follow();
    if (contentOf(options.file) !== this.#seen) this.#stirred();
  }

  end(): void {
    this.#cancel();
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }

  #stirred(): void {
    const { clock } = this.#options;
    const now = clock.nowMs();
    this.#stirredAtMs ??= now;
    this.#cancel();
    this.#cancel = clock.at(Math.min(now + quietMs, this.#stirredAtMs + delayMaxMs), () => this.#look());
  }

  #look(): void {
    this.#stirredAtMs = undefined;
    this.#follow();
    const now = contentOf(this.#options.file);
    // A file that is gone is about to be written, or was deleted by mistake: neither changes anything.
    if (now === undefined || now === this.#seen) return;
    this.#seen = now;
    this.#options.onChange();
  }

  /** The folders and not the file: a file that is replaced by renaming is another one. */
  #follow(): void {
    this.#names = placesOf(this.#options.file);
    for (const [folder, watcher] of [...this.#watchers]) {
      if (this.#names.has(folder)) continue;
      watcher.close();
      this.#watchers.delete(folder);
    }
    for (const folder of this.#names.keys()) if (!this.#watchers.has(folder)) this.#watch(folder);
  }

  #watch(folder: string): void {
    const { onProblem, watchFolder = watchBySystem } = this.#options;
    const told = (name: string | null) => {
      if (name === null || this.#names.get(folder)?.has(name)) this.#stirred();
    };
    try {
      this.#watchers.set(folder, watchFolder(folder, told, onProblem));
    } catch (error) {
      onProblem(error);
    }
  }
}

const watchBySystem: WatchFolder = (folder, told, onProblem) =>
  watch(folder, { persistent: false }, (_event, name) => told(name)).on('error', onProblem);

/** Where the path of a file is decided: every link on the way, and the file itself, as folder and name. */
function placesOf(file: string): Map<string, Set<string>> {
  const places = new Map<string, Set<string>>();
  const add = (folder: string, name: string) => places.set(folder, (places.get(folder) ?? new Set()).add(name));
  const absolute = path.resolve(file);
  add(path.dirname(absolute), path.basename(absolute));
  let { root: at } = path.parse(absolute);
  let names = absolute.slice(at.length).split(path.sep);
  for (let links = 0; names.length > 0; ) {
    const [name = '', ...rest] = names;
    const here = path.join(at, name);
    const target = linkTarget(here);
    if (target !== undefined && ++links <= linksMax) {
      add(at, name);
      if (path.isAbsolute(target)) at = path.parse(target).root;
      names = [...target.slice(path.isAbsolute(target) ? at.length : 0).split(path.sep), ...rest];
      continue;
    }
    if (rest.length === 0) add(at, name);
    at = here;
    names = rest;
  }
  return places;
}

function linkTarget(file: string): string | undefined {
  try {
    return lstatSync(file).isSymbolicLink() ? readlinkSync(file) : undefined;
  } catch {
    return undefined;
  }
}

/** Larger ones are refused when they are read; until then their time of change stands for them. */
const comparedBytesMax = 4 * 1024 * 1024;

export function contentOf(file: string): string | undefined {
  try {
    const { size, mtimeMs } = statSync(file);
    return size > comparedBytesMax ? `${size} ${mtimeMs}` : readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
