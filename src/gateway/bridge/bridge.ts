/**
 * The bridge between the eras: a server may need something of the client before it can answer, and the two eras ask for it
 * in ways that have nothing in common. Chooses by the era of the client; the server's shows in what it does.
 *
 * Invariant: whatever is asked reaches the client whose request caused it, and no other.
 */
import type { Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import type { Bridge } from './bridge-ports.js';
import { relayLegacy } from './legacy-client.js';
import { relayModern } from './modern-client.js';
import { ParkedCalls } from './parked-calls.js';
import { StateSeal } from './sealed-state.js';

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
