/**
 * Requests of legacy clients, which are asked by requests to them: what a legacy server asks is handed on (server-requests.ts),
 * what a modern server wants becomes requests, and its call is sent again with the answers (input-rounds.ts).
 */
import type { Clock } from '../../../kernel/clock.js';
import type { Random } from '../../../kernel/random.js';
import type { BridgedRequest, BridgeOptions, Relayed } from '../../bridge/bridged-request.js';
import { carriedCapabilities } from '../../bridge/carried-capabilities.js';
import { readInputRequired } from '../../bridge/input-required.js';
import { InputRounds } from './input-rounds.js';
import { ServerRequests } from './server-requests.js';

export interface LegacyPorts {
  readonly clock: Clock;
  readonly random: Random;
}

export async function relayLegacy(request: BridgedRequest, { clock, random }: LegacyPorts): Promise<Relayed> {
  const { exchange, server, send } = request;
  // Made when the server asks: nearly none does.
  let asks: ServerRequests | undefined;
  const options: BridgeOptions = {
    capabilities: carriedCapabilities(exchange.client, exchange.ask !== undefined),
    onServerRequest: (inbound) => {
      asks ??= new ServerRequests(exchange, clock);
      asks.take(inbound);
    },
  };
  try {
    const relayed = await send(options);
    const required = readInputRequired(server, exchange.method, relayed);
    return required ? await new InputRounds(request, clock, random).run(relayed, required, options) : relayed;
  } finally {
    asks?.end();
  }
}
