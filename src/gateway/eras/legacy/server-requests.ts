/**
 * Legacy client, legacy server: what the server asks in the middle of a call goes to the client of that call, as it is, and
 * the client's answer back, as it is.
 * Not here: whose call it was that made the server ask. Only what is certain gets here.
 *
 * Invariants: each request of the server is answered exactly once, unless the server took it back; an ask ends with its
 * request or with the call, whichever is first.
 */
import type { Clock } from '../../../kernel/clock.js';
import { ERRORS, isHostError } from '../../../kernel/errors.js';
import type { InboundRequest } from '../../../wire/inbound-requests.js';
import { RPC } from '../../../wire/rpc-codes.js';
import { refuseUndeclared, refuseUnknown } from '../../bridge/bridge-errors.js';
import { isDeclared, needOf } from '../../bridge/client-needs.js';
import type { Exchange } from '../../exchange.js';

/** For a person to answer one question. */
export const askLimitMs = 5 * 60_000;
/** Of one call, open at once. */
export const asksMax = 32;

export class ServerRequests {
  readonly #exchange: Exchange;
  readonly #clock: Clock;
  readonly #open = new Set<AbortController>();
  #isOver = false;

  constructor(exchange: Exchange, clock: Clock) {
    this.#exchange = exchange;
    this.#clock = clock;
  }

  take(request: InboundRequest): void {
    const need = needOf(request.method, request.params);
    if (!need) return refuseUnknown(request);
    const { client, ask } = this.#exchange;
    if (!ask || !isDeclared(need, client.capabilities)) return refuseUndeclared(request, need);
    if (this.#isOver) return request.refuse(RPC.internalError, 'the call is over');
    if (this.#open.size >= asksMax)
      return request.refuse(
        ERRORS.overloaded.rpc,
        `overloaded: at most ${asksMax} requests of one call wait for the client`,
      );
    void this.#relay(request, ask);
  }

  /** The call has its answer, or nobody waits for it any more. */
  end(): void {
    this.#isOver = true;
    for (const open of this.#open) open.abort();
  }

  async #relay(request: InboundRequest, ask: NonNullable<Exchange['ask']>): Promise<void> {
    const ending = new AbortController();
    const end = () => ending.abort();
    this.#open.add(ending);
    request.signal.addEventListener('abort', end, { once: true });
    try {
      const deadlineAtMs = this.#clock.nowMs() + askLimitMs;
      const answer = await ask(request.method, request.params, { deadlineAtMs, signal: ending.signal });
      if (this.#isOver) request.refuse(RPC.internalError, 'the call is over');
      else if (answer.kind === 'result') request.respond(answer.bytes);
      else request.fail(answer.bytes);
    } catch (error) {
      const why = isHostError(error) ? error.message : 'the client could not be asked';
      request.refuse(RPC.internalError, this.#isOver ? 'the call is over' : why);
    } finally {
      request.signal.removeEventListener('abort', end);
      this.#open.delete(ending);
    }
  }
}
