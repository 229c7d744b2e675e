/**
 * The bridge between the eras: a server may need something of the client before it can answer, and the two eras ask for it
 * in ways that have nothing in common. Chooses by the era of the client; the server's shows in what it does.
 *
 * Invariant: whatever is asked reaches the client whose request caused it, and no other.
 */
import type { Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import { relayLegacy } from '../eras/legacy/bridge.js';
import { relayModern } from '../eras/modern/bridge.js';
import { ParkedCalls } from '../eras/modern/parked-calls.js';
import { StateSeal } from '../eras/modern/sealed-state.js';
import type { Bridge } from './bridged-request.js';

export interface BridgeSettings {
  readonly clock: Clock;
  readonly random: Random;
  /** Where parked calls are kept; one of its own when absent. */
  readonly calls?: ParkedCalls;
}

export function createBridge({ clock, random, calls = new ParkedCalls() }: BridgeSettings): Bridge {
  const modern = { clock, calls, seal: new StateSeal(clock) };
  const legacy = { clock, random };
  return {
    relay: (request) =>
      request.exchange.client.era === 'modern' ? relayModern(request, modern) : relayLegacy(request, legacy),
  };
}
