/**
 * Types and rules for attributing a server message to the client request that caused it. They cover methods that can cause one,
 * clients with recent requests, and the error for a message without a clear cause. Not here: finding the cause
 * (attribution.ts).
 */
import { METHODS } from './methods.js';
import type { PendingRequest } from './pending-requests.js';
import { NOTIFICATION, RPC } from './rpc-codes.js';

/** Time for which a server may continue the work of an answered request. */
export const recentEndMs = 30_000;

/**
 * Clients with a recently ended request on a connection. Two times are enough for any number of clients: the last end, and the
 * last end of any other client. So memory is constant, and no object is allocated per request.
 */
export class RecentClients {
  /** Client whose request ended last. */
  #last: string | undefined;
  #lastEndAtMs = Number.NEGATIVE_INFINITY;
  /** Last end of a request of any client except `#last`. */
  #othersEndAtMs = Number.NEGATIVE_INFINITY;

  /** `client` undefined: the request was made for no client; all such requests count as one client. */
  ended(client: string | undefined, atMs: number): void {
    if (client !== this.#last) {
      this.#othersEndAtMs = this.#lastEndAtMs;
      this.#last = client;
    }
    this.#lastEndAtMs = atMs;
  }

  hasOther(client: string | undefined, nowMs: number): boolean {
    const endAtMs = client === this.#last ? this.#othersEndAtMs : this.#lastEndAtMs;
    return nowMs - endAtMs < recentEndMs;
  }

  hasAny(nowMs: number): boolean {
    return nowMs - this.#lastEndAtMs < recentEndMs;
  }
}

export type Cause =
  | { readonly kind: 'known'; readonly owner: PendingRequest }
  /** The message belongs to a request that has ended. */
  | { readonly kind: 'over' }
  /** No request in progress could have caused it. */
  | { readonly kind: 'none' }
  /** A recently ended request may have caused it. No request is in progress, or only one, of another client. */
  | { readonly kind: 'ended'; readonly count: number }
  /** Any of `count` requests in progress, or of `abandoned` requests that were given up, could have caused it. */
  | { readonly kind: 'unclear'; readonly count: number; readonly abandoned: number };

export const mayCause = (method: string | undefined): boolean =>
  method !== undefined && !METHODS.get(method)?.isHousekeeping;

/** Notifications that belong to the session and not to one request. */
const sessionCause = /\/list_changed$|^notifications\/(?:subscriptions|tasks)(?:\/|$)/;
export const isSessionCause = (method: string): boolean =>
  method === NOTIFICATION.resourceUpdated || sessionCause.test(method);

export function refusalFor(cause: Cause, method: string): readonly [code: number, message: string] {
  const shown = method.slice(0, methodCharsMax);
  switch (cause.kind) {
    case 'known':
      return [RPC.methodNotFound, `the client cannot be asked for ${shown}`];
    case 'none':
      return [RPC.methodNotFound, `this client does not offer ${shown}`];
    case 'over':
      return [RPC.internalError, 'the request that caused this has ended'];
    case 'ended':
      return [
        RPC.internalError,
        `ambiguous: a request that ended in the last ${recentEndS} s ${mayStillWork}, ${advice}`,
      ];
    case 'unclear':
      return [RPC.internalError, unclear(cause.count, cause.abandoned)];
    default:
      return cause satisfies never;
  }
}

const methodCharsMax = 100;
const recentEndS = recentEndMs / 1_000;
const mayStillWork = 'may still be at work';
const advice = 'Hostler does not guess which one asked; set isolation: per-client';

function unclear(count: number, abandoned: number): string {
  const working = count === 0 ? [] : [`${count} ${count === 1 ? 'request is' : 'requests are'} in progress`];
  const left = `${abandoned} ${count > 0 ? '' : abandoned === 1 ? 'request ' : 'requests '}`;
  const gone = abandoned === 0 ? [] : [`${left}${abandoned === 1 ? 'was' : 'were'} given up and ${mayStillWork}`];
  return `ambiguous: ${[...working, ...gone].join(' and ')}, ${advice}`;
}
