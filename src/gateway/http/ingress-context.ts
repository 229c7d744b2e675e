/**
 * State and settings that all requests of one HTTP listener share, in every era.
 * Not here: the listener itself (http-ingress.ts), the requests (eras/).
 */
import type { ByteBudget } from '../../kernel/byte-budget.js';
import type { Clock } from '../../kernel/clock.js';
import type { NewId, Random } from '../../kernel/random.js';
import type { Principal } from '../../policy/operation.js';
import type { EndpointId, Router } from '../exchange.js';
import type { LingeringClose } from './http-connections.js';
import type { HttpLimits } from './http-limits.js';
import type { OpenExchanges } from './open-exchanges.js';
import type { RequestHeaders } from './reply.js';
import type { StreamBeat } from './sse-stream.js';

/** Returns the principal of the key; undefined if the key is not valid. */
type Authenticate = (authorization: string | undefined) => Principal | undefined;

export interface IngressContext {
  readonly router: Router;
  readonly clock: Clock;
  readonly random: Random;
  /** Creates session ids, which must be unguessable. */
  readonly newId: NewId;
  readonly limits: HttpLimits;
  readonly beat: StreamBeat;
  readonly open: OpenExchanges;
  readonly bodies: ByteBudget;
  readonly lingering: LingeringClose;
  readonly authenticate: Authenticate;
  /** Number of key changes. If it grew while a body arrived, the request is authenticated again. */
  keyChanges: number;
  /** True: new requests are refused. Answers and notifications of clients are still accepted: open requests may wait for them. */
  isStopping: boolean;
  /** Receives internal errors. The client gets a generic error. */
  readonly onProblem: (error: unknown) => void;
}

/** The sender of one HTTP request that passed all guards. */
export interface Caller {
  readonly principal: Principal;
  readonly endpoint: EndpointId;
  readonly headers: RequestHeaders;
}
