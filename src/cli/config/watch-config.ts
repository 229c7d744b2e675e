/**
 * Watches the configuration file: saves in place, saves by rename, and changed links on the path to it.
 * Not here: applying a new configuration (up/apply-config.ts).
 * Invariants: one save is reported once, 200 ms after the last change and at most two seconds after the first. A save that
 * changes nothing, or only values that Hostler does not read, is not reported.
 */
import { createHash } from 'node:crypto';
import { lstatSync, readFileSync, readlinkSync, statSync, watch } from 'node:fs';
import path from 'node:path';
import { configBytesMax } from '../../config/folders.js';
import { withoutForeign } from '../../config/without-foreign.js';
import type { Clock } from '../../kernel/clock.js';

/** Reports changed names in a folder, or null if the system gives no name. Throws if the folder cannot be watched. */
type WatchFolder = (
  folder: string,
  onName: (name: string | null) => void,
  onProblem: (error: unknown) => void,
) => { close(): void };

export interface WatchOptions {
  readonly file: string;
  readonly clock: Clock;
  /** The result of `contentOf` from before the file was parsed, so that a save since then is reported. */
  readonly since?: string | undefined;
  /** Returns the part of the text whose changes are reported. Default: the part of a configuration that Hostler reads. */
  readonly relevant?: (text: string) => string;
  readonly onChange: () => void;
  /** Called when watching a folder fails or stops. */
  readonly onProblem: (error: unknown) => void;
  readonly watchFolder?: WatchFolder;
}

const quietMs = 200;
const delayMaxMs = 2_000;
const linksMax = 40;

export function watchConfig(options: WatchOptions): () => void {
  const watching = new ConfigWatch(options);
  return () => watching.end();
}

class ConfigWatch {
  readonly #options: WatchOptions;
  /** Watchers by folder. */
  readonly #watchers = new Map<string, { close(): void }>();
  /** For each folder, the names of the file and of links on the path to it. */
  #names: ReadonlyMap<string, ReadonlySet<string>> = new Map();
  #seen: string | undefined;
  #firstChangeMs: number | undefined;
  #cancel = () => {};

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#seen = options.since ?? this.#content();
    this.#follow();
    if (this.#content() !== this.#seen) this.#onChange();
  }

  end(): void {
    this.#cancel();
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }

  #content(): string | undefined {
    return contentOf(this.#options.file, this.#options.relevant);
  }

  #onChange(): void {
    const { clock } = this.#options;
    const now = clock.nowMs();
    this.#firstChangeMs ??= now;
    this.#cancel();
    this.#cancel = clock.at(Math.min(now + quietMs, this.#firstChangeMs + delayMaxMs), () => this.#compare());
  }

  #compare(): void {
    this.#firstChangeMs = undefined;
    this.#follow();
    const now = this.#content();
    // A missing file is about to be written, or was deleted by mistake. Both are ignored.
    if (now === undefined || now === this.#seen) return;
    this.#seen = now;
    this.#options.onChange();
  }

  /** Watches folders, because a save by rename replaces the file. */
  #follow(): void {
    this.#names = watchedNames(this.#options.file);
    for (const [folder, watcher] of [...this.#watchers]) {
      if (this.#names.has(folder)) continue;
      watcher.close();
      this.#watchers.delete(folder);
    }
    for (const folder of this.#names.keys()) if (!this.#watchers.has(folder)) this.#watch(folder);
  }

  #watch(folder: string): void {
    const { onProblem, watchFolder = watchBySystem } = this.#options;
    const onName = (name: string | null) => {
      if (name === null || this.#names.get(folder)?.has(name)) this.#onChange();
    };
    try {
      this.#watchers.set(folder, watchFolder(folder, onName, onProblem));
    } catch (error) {
      onProblem(error);
    }
  }
}

const watchBySystem: WatchFolder = (folder, onName, onProblem) =>
  watch(folder, { persistent: false }, (_event, name) => onName(name)).on('error', onProblem);

/** Names of the file and of every link on its path, by folder. */
function watchedNames(file: string): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  const add = (folder: string, name: string) => found.set(folder, (found.get(folder) ?? new Set()).add(name));
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
  return found;
}

function linkTarget(file: string): string | undefined {
  try {
    return lstatSync(file).isSymbolicLink() ? readlinkSync(file) : undefined;
  } catch {
    return undefined;
  }
}

const ownPart = (text: string): string => withoutForeign(text, true);

/** A digest of the relevant part of a file. A file that is too large to be read is compared by size and modification time. */
export function contentOf(file: string, relevant = ownPart): string | undefined {
  try {
    const { size, mtimeMs } = statSync(file);
    if (size > configBytesMax) return `${size} ${mtimeMs}`;
    return createHash('sha256')
      .update(relevant(readFileSync(file, 'utf8')))
      .digest('base64');
  } catch {
    return undefined;
  }
}
