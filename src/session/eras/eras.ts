/**
 * The table of eras, and a memory of the era of each server. A new era is one folder beside this file, and one line here.
 * The memory is not stored on disk, because an updated server would stay in its old era.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Era } from '../../wire/channel.js';
import { legacyEra } from './legacy/legacy-era.js';
import { modernEra } from './modern/modern-era.js';
import type { ServerEra } from './server-era.js';

/** Newest first: the order in which eras are tried. */
export const ERAS: readonly [ServerEra, ...ServerEra[]] = [
  modernEra, //
  legacyEra,
];

export const ALL_VERSIONS: readonly string[] = ERAS.flatMap(({ versions }) => versions);

/** The fallback for a server whose era is unknown. */
export const oldestEra: ServerEra = ERAS.at(-1) ?? ERAS[0];

export const httpSseEra: ServerEra = ERAS.find(({ hasHttpSse }) => hasHttpSse) ?? oldestEra;

/** Undefined: no era of this Hostler has the name. */
export function findEra(name: string): ServerEra | undefined {
  // A loop without a closure, because the gateway asks for each result.
  for (const era of ERAS) if (era.name === name) return era;
  return undefined;
}

export const eraNamed = (name: Era): ServerEra => findEra(name) ?? oldestEra;

/** Remembered eras, so that the next start need not negotiate. Keys identify a server. */
export interface EraMemory {
  get(key: string): Era | undefined;
  /** Call it when a session was opened. `era`: undefined if the session does not show the era that the server prefers. */
  opened(key: string, era: Era | undefined): void;
  /** Starts in a row that failed because the process exited or gave no valid answer. */
  failedStarts(key: string): number;
  startFailed(key: string): void;
}

/** Far more servers than one host runs. A dropped entry costs one more negotiation. */
const entriesMax = 10_000;

export function createEraMemory(): EraMemory {
  const eras = new Map<string, Era>();
  const failures = new Map<string, number>();
  return {
    get: (key) => eras.get(key),
    opened: (key, era) => {
      if (era !== undefined) setBounded(eras, key, era, entriesMax);
      failures.delete(key);
    },
    failedStarts: (key) => failures.get(key) ?? 0,
    startFailed: (key) => setBounded(failures, key, (failures.get(key) ?? 0) + 1, entriesMax),
  };
}
