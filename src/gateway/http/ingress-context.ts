/**
 * What all requests of one HTTP listener share, in every era.
 * Not here: the listener itself (http-ingress.ts), the requests (eras/).
 */

import type { ByteBudget } from '../../kernel/byte-budget.js';
import type { Clock } from '../../kernel/clock.js';
import type { NewId, Random } from '../../kernel/random.js';
import type { Principal } from '../../policy/operation.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { EndpointId } from '../endpoint-id.js';
import type { Exchange, Router } from '../exchange.js';
import type { HttpLimits } from './http-limits.js';
import type { LingeringClose } from './lingering-close.js';
import type { OpenExchanges } from './open-exchanges.js';
import type { RequestHeaders } from './request-headers.js';
import type { StreamBeat } from './sse-stream.js';

/** The principal that holds this key; undefined: the key is not valid. */
export type Authenticate = (authorization: string | undefined) => Principal | undefined;

export interface IngressContext {
  readonly router: Router;
  readonly clock: Clock;
  readonly random: Random;
  /** Names sessions; unguessable. */
  readonly newId: NewId;
  readonly limits: HttpLimits;
  readonly beat: StreamBeat;
  readonly open: OpenExchanges;
  readonly bodies: ByteBudget;
  readonly lingering: LingeringClose;
  readonly authenticate: Authenticate;
  /** Counts changes of the keys: a body that ends after one is authenticated again. */
  keyChanges: number;
  /** New requests are refused. Answers and notifications are taken: open requests may wait for them. */
  isStopping: boolean;
  /** Gets errors of our own; the request was answered. */
  readonly onProblem: (error: unknown) => void;
}

/** The sender of one HTTP request, once all guards have passed. */
export interface Caller {
  readonly principal: Principal;
  readonly endpoint: EndpointId;
  readonly headers: RequestHeaders;
}

/** Hands an exchange to the router. An error of the router costs this one request, which is still answered. */
export function route({ router, onProblem }: IngressContext, exchange: Exchange): void {
  try {
    router.handle(exchange);
  } catch (error) {
    onProblem(error);
    exchange.fail({ code: RPC.internalError, message: 'hostler failed on this request; see its log' });
  }
}
