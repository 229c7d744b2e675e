/**
 * Reads the configuration of one run. Unconfirmed parts of a file found in the working folder have no effect.
 * Not here: finding the file (config/find-config.ts), splitting it into parts (config-parts.ts), the prompt (ask-trust.ts).
 * Invariants: the confirmed bytes are the bytes that are used, also of the files that `${file:...}` names. A file named with
 * `--config`, or in the configuration folder of the user, needs no confirmation.
 */
import { realpathSync } from 'node:fs';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import {
  fillConfig,
  normaliseText,
  type ReadConfig,
  readConfigFile,
  readConfigSource,
} from '../../config/config-file.js';
import { ownDataFolder } from '../../config/folders.js';
import { parseServing } from '../../config/host-config.js';
import { PlaceholderFiles } from '../../config/placeholders.js';
import { HostError } from '../../kernel/errors.js';
import type { ConfigLocation } from '../config/find-config.js';
import { type ConfigPart, partsOf } from './config-parts.js';
import { type TrustedLocation, TrustStore } from './trust-store.js';
import { type UsableChanges, withholdUnconfirmed } from './unconfirmed-changes.js';

type Environment = NodeJS.ProcessEnv;

export interface UsableConfig extends ReadConfig {
  /**
   * False if this configuration equals both the one in use and the one that was read last. Clients often save their file after a
   * change that does not concern Hostler.
   */
  readonly isChanged: boolean;
  /** To be called when the configuration is in use. Parts that a later edit changes without confirmation then stay as they are here. */
  readonly accept: () => void;
}

export interface Reading {
  readonly location: TrustedLocation;
  readonly parts: readonly ConfigPart[];
  readonly filled: ReadConfig;
}

/** Throws unless the user confirms the configuration. */
export type AskTrust = (reading: Reading, confirmed: ReadonlySet<string> | undefined) => Promise<void>;

interface Applicable extends UsableChanges {
  readonly problems: readonly string[];
}

export class TrustedSource {
  readonly #location: ConfigLocation;
  readonly #env: Environment;
  readonly #store: TrustStore | undefined;
  #applied: Applicable | undefined;
  /** The configuration that was read last. It may be about to replace `#applied`. */
  #newest: Applicable | undefined;

  constructor(location: ConfigLocation, env: Environment) {
    this.#location = location;
    this.#env = env;
    this.#store = location.isFoundInFolder ? trustStoreOf(env) : undefined;
  }

  /** Paths of the parts of the last edit that wait for `hostler trust`. */
  get waiting(): readonly string[] {
    return this.#applied?.waiting ?? [];
  }

  /** Path of the file of confirmations, for a watcher; undefined if no confirmation is needed. */
  get confirmations(): string | undefined {
    return this.#store?.path;
  }

  /** Reads the file at a start. Throws unless all parts are confirmed in the store or by `ask`. */
  async open(ask: AskTrust): Promise<UsableConfig> {
    if (!this.#store) return this.#named();
    const reading = readFound(this.#location.file, this.#env);
    const confirmed = this.#store.find(reading.location);
    if (!isConfirmed(reading, confirmed)) await ask(reading, confirmed);
    const { filled, parts } = reading;
    return this.#usable(filled, { config: filled.config, parts, waiting: [] });
  }

  /** Reads the file after an edit. Unconfirmed parts stay as in the configuration that was accepted last. */
  read(): UsableConfig {
    if (!this.#store || !this.#applied) return this.#named();
    const { location, parts, filled } = readFound(this.#location.file, this.#env);
    // The whole edit is parsed here, so an error in an unconfirmed part makes the edit invalid.
    parseServing(filled.config);
    const confirmed = this.#store.find(location) ?? new Set<string>();
    return this.#usable(filled, withholdUnconfirmed(this.#applied, { config: filled.config, parts }, confirmed));
  }

  #named(): UsableConfig {
    const filled = readConfigFile(this.#location.file, this.#env);
    return this.#usable(filled, { config: filled.config, parts: [], waiting: [] });
  }

  #usable(filled: ReadConfig, usable: UsableChanges): UsableConfig {
    const { config, parts, waiting } = usable;
    const next = { config, parts, waiting, problems: filled.problems.map(({ message }) => message) };
    const accept = () => {
      this.#applied = next;
    };
    const isChanged = [this.#applied, this.#newest].some((other) => !isDeepStrictEqual(other, next));
    this.#newest = next;
    return { ...filled, config, isChanged, accept };
  }
}

export const isConfirmed = ({ parts }: Pick<Reading, 'parts'>, confirmed: ReadonlySet<string> | undefined): boolean =>
  confirmed !== undefined && parts.every(({ digest }) => confirmed.has(digest));

/** Reads the file and each file it names exactly once. */
export function readFound(file: string, env: Environment): Reading {
  const { text, realFile, uid } = readConfigSource(file);
  const folder = path.dirname(path.resolve(file));
  const files = new PlaceholderFiles(folder, env);
  const written = normaliseText(text, file);
  return {
    location: { file: realFile, folder: realpathSync(folder), uid },
    parts: partsOf(written.config, files),
    filled: fillConfig(written, { env, folder, files, areFilesConfirmed: true }),
  };
}

export function trustStoreOf(env: Environment): TrustStore {
  const folder = ownDataFolder(env);
  if (folder !== undefined) return new TrustStore(folder);
  throw new HostError('invalid_spec', 'there is no folder for confirmations: HOME is not set', {
    reason: 'no_home',
    hint: 'set HOSTLER_DATA_DIR to an absolute path, or name the file with --config, which needs no confirmation',
  });
}
