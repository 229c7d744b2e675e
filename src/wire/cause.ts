/**
 * Finds the request of ours that caused a message which a server sends on its own. Changes nothing.
 * An origin that the channel knows is proof: the response stream of one request (HTTP), or the request that the server named.
 * The protocol has nothing else. Without an origin, the only request in progress is taken for the cause, unless a request of
 * another client ended lately. With two requests of one client, one whose server request has been open for a while is waiting for
 * the answer, so the other is the cause. (Not at once: a call may cause several server requests together.)
 *
 * Invariant: in doubt there is no cause. A guess would show one client what is meant for another.
 */
import { type MessageOrigin, type OutboundFrame, originId } from './channel.js';
import type { IdTable } from './id-table.js';
import { listenMethod, NOTIFICATION, RPC } from './rpc-codes.js';

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

export type Cause<T> =
  | { readonly kind: 'known'; readonly owner: T }
  /** It belongs to a request that has ended. */
  | { readonly kind: 'over' }
  /** No request in progress could have caused it. */
  | { readonly kind: 'none' }
  /** A request that ended lately may have caused it: none is in progress, or only one of another client. */
  | { readonly kind: 'ended'; readonly count: number }
  /** `count` requests in progress could have, and `abandoned` ones that were given up. */
  | { readonly kind: 'unclear'; readonly count: number; readonly abandoned: number };

/** Housekeeping requests: a server does not ask a person because of these. All others may cause server requests. */
const housekeeping: ReadonlySet<string> = new Set([
  'initialize',
  'ping',
  'server/discover',
  listenMethod,
  'resources/subscribe',
  'resources/unsubscribe',
  'logging/setLevel',
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
]);

/** Whether a request with this method may cause messages of the server. */
export const mayCause = (method: string | undefined): boolean => method !== undefined && !housekeeping.has(method);

/** Notifications that belong to the session and not to one request. */
const ofSession = /\/list_changed$|^notifications\/(?:subscriptions|tasks)(?:\/|$)/;
export const isOfSession = (method: string): boolean =>
  method === NOTIFICATION.resourceUpdated || ofSession.test(method);

interface Underway {
  readonly frame: OutboundFrame;
  /** `client`: opaque, the same for all requests of one client. */
  readonly options: { readonly client?: string | undefined };
}

interface Circumstances<T> {
  /** The request that caused it, where the channel knows. */
  readonly origin: MessageOrigin | undefined;
  /** Number of requests that were given up and that the server may still work on. */
  readonly abandoned: number;
  /** False: all requests are of one client, and the newest will do. */
  readonly isShared: boolean;
  /** For a server request: whether a request waits for the answer to an earlier one, and so did not cause this one. */
  readonly isWaiting?: ((one: T) => boolean) | undefined;
  /** Requests that ended lately. */
  readonly recent: Pick<RecentClients, 'hasOther' | 'hasAny'>;
  readonly nowMs: number;
}

export function causeOf<T extends Underway>(
  underway: IdTable<T>,
  { origin, abandoned, isShared, isWaiting, recent, nowMs }: Circumstances<T>,
): Cause<T> {
  if (origin !== undefined) {
    const id = originId(origin);
    const owner = id === undefined ? undefined : underway.get(id);
    // A request that was not written yet cannot be the cause: the server guessed its id.
    return owner && owner.frame.phase !== 'queued' ? { kind: 'known', owner } : { kind: 'over' };
  }
  let newest: T | undefined;
  let count = 0;
  let asking: T | undefined;
  let askingCount = 0;
  let isOneClient = true;
  underway.forEach((one) => {
    // A request that was not written yet cannot be the cause.
    if (!mayCause(one.frame.method) || one.frame.phase === 'queued') return;
    count++;
    if (newest !== undefined && one.options.client !== newest.options.client) isOneClient = false;
    if (newest === undefined || (one.frame.id as number) > (newest.frame.id as number)) newest = one;
    if (isWaiting?.(one)) return;
    askingCount++;
    asking = one;
  });
  if (newest !== undefined && !isShared) return { kind: 'known', owner: newest };
  if (count + abandoned === 0) return recent.hasAny(nowMs) ? { kind: 'ended', count } : { kind: 'none' };
  const owner: T | undefined = count === 1 ? newest : isOneClient && askingCount === 1 ? asking : undefined;
  if (owner === undefined || abandoned > 0) return { kind: 'unclear', count, abandoned };
  return recent.hasOther(owner.options.client, nowMs) ? { kind: 'ended', count } : { kind: 'known', owner };
}

/** The error for a server request that reaches no client. */
export function refusalFor(cause: Cause<unknown>, method: string): readonly [code: number, message: string] {
  const shown = method.slice(0, methodCharsMax);
  switch (cause.kind) {
    case 'known':
      return [RPC.methodNotFound, `the client cannot be asked for ${shown}`];
    case 'none':
      return [RPC.methodNotFound, `this client does not offer ${shown}`];
    case 'over':
      return [RPC.internalError, 'the request that this belongs to is over'];
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
