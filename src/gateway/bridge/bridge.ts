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
  /** What sealed states are kept secret by; with the same one they outlive a restart. Absent: a new one for each process. */
  readonly secret?: string | Uint8Array;
  /** Where parked calls are kept; one of its own when absent. */
  readonly calls?: ParkedCalls;
}

export function createBridge({ clock, random, secret, calls = new ParkedCalls() }: BridgeSettings): Bridge {
  const modern = { clock, calls, seal: new StateSeal(clock, secret) };
  const legacy = { clock, random };
  return {
    relay: (request) =>
      request.exchange.client.era === 'modern' ? relayModern(request, modern) : relayLegacy(request, legacy),
  };
}
