/**
 * The cause of a message that a server sends on its own: which methods can be one, which clients had requests lately, and the refusal
 * of a server request without a certain cause. Not here: finding the cause (attribution.ts).
 */
import { METHODS } from './methods.js';
import type { PendingRequest } from './pending-requests.js';
import { NOTIFICATION, RPC } from './rpc-codes.js';

/** How long a server may go on with the work of a request that it has answered. */
export const recentEndMs = 30_000;

/**
 * Which clients had a request end on a connection lately. Two points in time decide it, for any number of clients: the last end,
 * and the last end of any other client. Constant memory; no closure and no object per request.
 */
export class RecentClients {
  /** The client whose request ended last. */
  #last: string | undefined;
  #lastEndAtMs = Number.NEGATIVE_INFINITY;
  /** The last end of a request of any client but `#last`. */
  #othersEndAtMs = Number.NEGATIVE_INFINITY;

  /** A request of this client has ended. Undefined stands for one client: requests that were made in no client's name. */
  ended(client: string | undefined, atMs: number): void {
    if (client !== this.#last) {
      this.#othersEndAtMs = this.#lastEndAtMs;
      this.#last = client;
    }
    this.#lastEndAtMs = atMs;
  }

  /** Whether a request of any other client ended less than `recentEndMs` ago. */
  hasOther(client: string | undefined, nowMs: number): boolean {
    const endAtMs = client === this.#last ? this.#othersEndAtMs : this.#lastEndAtMs;
    return nowMs - endAtMs < recentEndMs;
  }

  /** Whether a request of any client at all ended less than `recentEndMs` ago. */
  hasAny(nowMs: number): boolean {
    return nowMs - this.#lastEndAtMs < recentEndMs;
  }
}

export type Cause =
  | { readonly kind: 'known'; readonly owner: PendingRequest }
  /** It belongs to a request that has ended. */
  | { readonly kind: 'over' }
  /** No request in progress could have caused it. */
  | { readonly kind: 'none' }
  /** A request that ended lately may have caused it: none is in progress, or only one of another client. */
  | { readonly kind: 'ended'; readonly count: number }
  /** `count` requests in progress could have, and `abandoned` ones that were given up. */
  | { readonly kind: 'unclear'; readonly count: number; readonly abandoned: number };

/** Whether a request with this method may cause messages of the server. */
export const mayCause = (method: string | undefined): boolean =>
  method !== undefined && !METHODS.get(method)?.isHousekeeping;

/** Notifications that belong to the session and not to one request. */
const ofSession = /\/list_changed$|^notifications\/(?:subscriptions|tasks)(?:\/|$)/;
export const isOfSession = (method: string): boolean =>
  method === NOTIFICATION.resourceUpdated || ofSession.test(method);

/** The error for a server request that reaches no client. */
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
