/**
 * Remembers eras for as long as the process lives, and how often a server failed to start since its last session.
 * Not on disk: a server that was updated to speak both eras would be spoken to in the old one for ever.
 */
import { setBounded } from '../kernel/bounded-map.js';
import type { Era } from '../wire/channel.js';
import type { EraMemory } from './versions.js';

/** More servers than any one host runs; past it the oldest is asked again, which costs one question. */
const rememberedMax = 10_000;

export function createEraMemory(): EraMemory {
  const eras = new Map<string, Era>();
  const failures = new Map<string, number>();
  return {
    get: (key) => eras.get(key),
    opened: (key, era) => {
      if (era !== undefined) setBounded(eras, key, era, rememberedMax);
      failures.delete(key);
    },
    failedStarts: (key) => failures.get(key) ?? 0,
    startFailed: (key) => setBounded(failures, key, (failures.get(key) ?? 0) + 1, rememberedMax),
  };
}
