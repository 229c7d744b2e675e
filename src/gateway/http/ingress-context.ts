/**
 * What all requests of one ingress share, and the one way from there to the router.
 * Not here: requests themselves (eras/<era>/http-exchange.ts), and who makes the context (http-ingress.ts).
 *
 * Invariant: a router that throws costs the one request, which is still answered.
 */
import type { Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { Exchange, Router } from '../exchange.js';
import type { HttpLimits } from './http-limits.js';
import type { OpenExchanges } from './open-exchanges.js';
import type { StreamBeat } from './sse-stream.js';

export interface IngressContext {
  readonly router: Router;
  readonly clock: Clock;
  readonly random: Random;
  readonly limits: HttpLimits;
  readonly beat: StreamBeat;
  readonly open: OpenExchanges;
  /** What a router did that it must not. */
  readonly onProblem: (error: unknown) => void;
}

/** A router that throws has not taken the request, and nobody else will answer it. */
export function route({ router, onProblem }: IngressContext, exchange: Exchange): void {
  try {
    router.handle(exchange);
  } catch (error) {
    onProblem(error);
    exchange.fail({ code: RPC.internalError, message: 'hostler failed on this request; its log says why' });
  }
}
