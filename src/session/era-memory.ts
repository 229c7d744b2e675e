/**
 * Remembers eras for as long as the process lives.
 */
import { setBounded } from '../kernel/bounded-map.js';
import type { Era } from '../wire/channel.js';
import type { EraMemory } from './versions.js';

/** More servers than any one host runs; past it the oldest is asked again, which costs one question. */
const rememberedMax = 10_000;

export function createEraMemory(): EraMemory {
  const eras = new Map<string, Era>();
  return {
    get: (key) => eras.get(key),
    set: (key, era) => setBounded(eras, key, era, rememberedMax),
  };
}
