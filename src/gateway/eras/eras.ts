/** The list of client eras. A new era is a folder that implements era.ts and one line in this list. */
import type { Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import type { Bridge } from '../bridge/bridged-request.js';
import type { ClientEra } from './era.js';
import { legacyEra } from './legacy/era.js';
import { modernEra } from './modern/era.js';

/** The order matters: the first era that claims a message gets it, and the last one claims every message. */
export const ERAS: readonly ClientEra[] = [
  modernEra, //
  legacyEra,
];

const byName = new Map(ERAS.map((era) => [era.name, era]));

/** `name`: the `era` of a client. */
export const eraOf = (name: string): ClientEra => byName.get(name) as ClientEra;

export function claimant<T extends { readonly era: ClientEra }>(
  eras: readonly T[],
  version: string | undefined,
  params: Buffer | undefined,
): T {
  for (const each of eras) if (each.era.claims(version, params)) return each;
  return eras.at(-1) as T;
}

/** The era of the client decides how questions of a server reach it. */
export function createBridge(parts: { readonly clock: Clock; readonly random: Random }): Bridge {
  const bridges = new Map(ERAS.map((era) => [era.name, era.createBridge(parts)]));
  return {
    relay: (request) => (bridges.get(request.exchange.client.era) as Bridge).relay(request),
    endWaiting: (isMeant) => {
      for (const bridge of bridges.values()) bridge.endWaiting?.(isMeant);
    },
    close: () => {
      for (const bridge of bridges.values()) bridge.close?.();
    },
  };
}
