/**
 * The configuration of one run, read so that a file which was only found in the working folder does nothing unconfirmed.
 * Not here: which file (find-config.ts), what a confirmation covers (config-parts.ts), asking a person (ask-trust.ts).
 *
 * Invariants: the bytes that are confirmed are the bytes that are used, also those of the files that `${file:...}` names; a file
 * that was named with `--config`, or is that of the account, is used as it is.
 */
import { realpathSync } from 'node:fs';
import path from 'node:path';
import { parseConfigText, readConfigFile, readConfigSource } from '../../config/config-file.js';
import { ownDataFolder } from '../../config/folders.js';
import { parseServing } from '../../config/host-config.js';
import { type Filled, fillPlaceholders, PlaceholderFiles } from '../../config/placeholders.js';
import { HostError } from '../../kernel/errors.js';
import type { ConfigPlace } from '../find-config.js';
import { type ConfigPart, partsOf } from './config-parts.js';
import { type Configuration, type Held, holdChanges } from './hold-changes.js';
import { type TrustedPlace, TrustStore } from './trust-store.js';

type Environment = NodeJS.ProcessEnv;

export interface UsableConfig extends Filled {
  /** It is in use now: what a later edit changes without a confirmation stays as it is in this one. */
  readonly accept: () => void;
}

export interface Reading {
  readonly place: TrustedPlace;
  readonly parts: readonly ConfigPart[];
  readonly filled: Filled;
}

/** Throws unless the person who was asked confirmed it. */
export type AskTrust = (reading: Reading, confirmed: ReadonlySet<string> | undefined) => Promise<void>;

export class TrustedSource {
  readonly #place: ConfigPlace;
  readonly #env: Environment;
  readonly #store: TrustStore | undefined;
  #applied: Configuration | undefined;
  #waiting: readonly string[] = [];

  constructor(place: ConfigPlace, env: Environment) {
    this.#place = place;
    this.#env = env;
    this.#store = place.isFoundInFolder ? trustStoreOf(env) : undefined;
  }

  /** Parts of the last edit that wait for `hostler trust`, as paths. */
  get waiting(): readonly string[] {
    return this.#waiting;
  }

  /** The file whose change may confirm what waits; undefined when nothing ever waits. */
  get confirmations(): string | undefined {
    return this.#store?.path;
  }

  /** For a start: throws unless the whole file is confirmed, if need be by `ask`. */
  async open(ask: AskTrust): Promise<UsableConfig> {
    if (!this.#store) return this.#named();
    const reading = readFound(this.#place.file, this.#env);
    const confirmed = this.#store.find(reading.place);
    if (!isConfirmed(reading, confirmed)) await ask(reading, confirmed);
    const { filled, parts } = reading;
    return this.#usable(filled, { config: filled.config, parts, waiting: [] });
  }

  /** For an edit: what is not confirmed stays as it is in the configuration that was last accepted. */
  read(): UsableConfig {
    if (!this.#store || !this.#applied) return this.#named();
    const { place, parts, filled } = readFound(this.#place.file, this.#env);
    // Before anything is held back: a mistake in what waits makes the edit as unusable as any other.
    parseServing(filled.config);
    const confirmed = this.#store.find(place) ?? new Set<string>();
    return this.#usable(filled, holdChanges(this.#applied, { config: filled.config, parts }, confirmed));
  }

  #named(): UsableConfig {
    return { ...readConfigFile(this.#place.file, this.#env), accept: () => {} };
  }

  #usable(filled: Filled, held: Held): UsableConfig {
    const accept = () => {
      this.#applied = held;
      this.#waiting = held.waiting;
    };
    return { ...filled, config: held.config, accept };
  }
}

export const isConfirmed = ({ parts }: Pick<Reading, 'parts'>, confirmed: ReadonlySet<string> | undefined): boolean =>
  confirmed !== undefined && parts.every(({ digest }) => confirmed.has(digest));

/** Reads the file, and each file it names, once. */
export function readFound(file: string, env: Environment): Reading {
  const { text, realFile, uid } = readConfigSource(file);
  const folder = path.dirname(path.resolve(file));
  const files = new PlaceholderFiles(folder);
  const config = parseConfigText(text, file);
  return {
    place: { file: realFile, folder: realpathSync(folder), uid },
    parts: partsOf(config, files),
    filled: fillPlaceholders(config, { env, folder, files }),
  };
}

export function trustStoreOf(env: Environment): TrustStore {
  const folder = ownDataFolder(env);
  if (folder !== undefined) return new TrustStore(folder);
  throw new HostError('invalid_spec', 'there is no place for confirmations: HOME is not set', {
    reason: 'no_home',
    hint: 'set HOSTLER_DATA_DIR to an absolute path, or name the file with --config, which needs no confirmation',
  });
}
