/**
 * The bridge for legacy clients. It forwards the requests of a legacy server to the client.
 * Not here: `input_required` of a modern server (input-rounds.ts).
 */
import type { Clock } from '../../../kernel/clock.js';
import { ERRORS, isHostError } from '../../../kernel/errors.js';
import type { Random } from '../../../kernel/random.js';
import type { InboundRequest } from '../../../wire/inbound-requests.js';
import { RPC } from '../../../wire/rpc-codes.js';
import { refuseUndeclared, refuseUnknown } from '../../bridge/bridge-errors.js';
import type { Bridge, BridgedRequest, BridgeOptions, Relayed } from '../../bridge/bridged-request.js';
import { forwardedCapabilities, isDeclared, neededCapability } from '../../bridge/client-capabilities.js';
import { readInputRequired } from '../../bridge/input-required.js';
import type { Ask, Exchange } from '../../exchange.js';
import { askLimitMs, InputRounds } from './input-rounds.js';

interface LegacyBridgeParts {
  readonly clock: Clock;
  readonly random: Random;
}

export const createLegacyBridge = (parts: LegacyBridgeParts): Bridge => ({
  relay: (request) => relayLegacy(request, parts),
});

async function relayLegacy(request: BridgedRequest, { clock, random }: LegacyBridgeParts): Promise<Relayed> {
  const { exchange, server } = request;
  // Created on demand: few servers send requests.
  let asks: ServerRequests | undefined;
  const options: BridgeOptions = {
    capabilities: forwardedCapabilities(exchange.client, exchange.ask !== undefined),
    onServerRequest: (inbound) => {
      asks ??= new ServerRequests(exchange, clock);
      asks.take(inbound);
    },
  };
  try {
    const relayed = await request.send(options);
    const required = readInputRequired(server, exchange.method, relayed);
    return required ? await new InputRounds(request, clock, random).run(relayed, required, options) : relayed;
  } finally {
    asks?.end();
  }
}

/** Maximum of open server requests per call. */
export const asksMax = 32;

class ServerRequests {
  readonly #exchange: Exchange;
  readonly #clock: Clock;
  readonly #open = new Set<AbortController>();
  #isOver = false;

  constructor(exchange: Exchange, clock: Clock) {
    this.#exchange = exchange;
    this.#clock = clock;
  }

  take(request: InboundRequest): void {
    const need = neededCapability(request.method, request.params);
    if (!need) return refuseUnknown(request);
    const { client, ask } = this.#exchange;
    if (!ask || !isDeclared(need, client.capabilities)) return refuseUndeclared(request, need);
    if (this.#isOver) return request.refuse(RPC.internalError, 'the call has ended');
    if (this.#open.size >= asksMax)
      return request.refuse(
        ERRORS.overloaded.rpc,
        `overloaded: at most ${asksMax} requests of one call wait for the client`,
      );
    void this.#relay(request, ask);
  }

  /** Called when the call is answered or cancelled. */
  end(): void {
    this.#isOver = true;
    for (const open of this.#open) open.abort();
  }

  async #relay(request: InboundRequest, ask: Ask): Promise<void> {
    const ending = new AbortController();
    const end = () => ending.abort();
    this.#open.add(ending);
    request.signal.addEventListener('abort', end, { once: true });
    try {
      const deadlineAtMs = this.#clock.nowMs() + askLimitMs;
      const answer = await ask(request.method, request.params, { deadlineAtMs, signal: ending.signal });
      if (this.#isOver) request.refuse(RPC.internalError, 'the call has ended');
      else if (answer.kind === 'result') request.respond(answer.bytes);
      else request.fail(answer.bytes);
    } catch (error) {
      const why = isHostError(error) ? error.message : 'the client could not be asked';
      request.refuse(RPC.internalError, this.#isOver ? 'the call has ended' : why);
    } finally {
      request.signal.removeEventListener('abort', end);
      this.#open.delete(ending);
    }
  }
}
