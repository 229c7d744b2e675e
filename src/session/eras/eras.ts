/** The table of eras. A new era is one folder beside this file, and one line here. */
import type { Era } from '../../wire/channel.js';
import { legacyEra } from './legacy/legacy-era.js';
import { modernEra } from './modern/modern-era.js';
import type { ServerEra } from './server-era.js';

/** Newest first, which is the order in which a server is asked. */
export const ERAS: readonly [ServerEra, ...ServerEra[]] = [modernEra, legacyEra];

export const ALL_VERSIONS: readonly string[] = ERAS.flatMap(({ versions }) => versions);

/** The era that is assumed of a server that cannot be asked. */
export const oldestEra: ServerEra = ERAS.at(-1) ?? ERAS[0];

export const httpSseEra: ServerEra = ERAS.find(({ hasHttpSse }) => hasHttpSse) ?? oldestEra;

export const eraNamed = (name: Era): ServerEra => ERAS.find((era) => era.name === name) ?? oldestEra;
