/** The eras that clients may speak. A new era is a folder that implements era.ts and one line here. */
import type { Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import type { Bridge } from '../bridge/bridged-request.js';
import type { ClientEra } from './era.js';
import { legacyEra } from './legacy/era.js';
import { modernEra } from './modern/era.js';

/** In the order in which they are tried: the last one claims every message. */
export const ERAS: readonly ClientEra[] = [
  modernEra, //
  legacyEra,
];

const byName = new Map(ERAS.map((era) => [era.name, era]));

/** `name`: of a client. */
export const eraOf = (name: string): ClientEra => byName.get(name) as ClientEra;

/** The first era that claims the message, by the header `MCP-Protocol-Version` or its params. */
export function claimant<T extends { readonly era: ClientEra }>(
  eras: readonly T[],
  version: string | undefined,
  params: Buffer | undefined,
): T {
  for (const each of eras) if (each.era.claims(version, params)) return each;
  return eras.at(-1) as T;
}

/** The bridge of each era behind one: the era of the client decides how a server's questions reach it. */
export function createBridge(parts: { readonly clock: Clock; readonly random: Random }): Bridge {
  const bridges = new Map(ERAS.map((era) => [era.name, era.createBridge(parts)]));
  return { relay: (request) => (bridges.get(request.exchange.client.era) as Bridge).relay(request) };
}
