/**
 * Which of our requests is behind something that a server says on its own. Pure: it looks, and changes nothing.
 * A stream of HTTP belongs to one request; everywhere else the protocol has no word for it, and only being the one request
 * that is under way makes it certain.
 *
 * Invariant: in doubt there is no cause. Whoever guesses shows one client what is meant for another.
 */
import type { OutboundFrame } from './channel.js';
import type { IdTable } from './id-table.js';
import { NOTIFICATION, RPC } from './rpc-codes.js';

export type Cause<T> =
  | { readonly kind: 'known'; readonly owner: T }
  /** It came in the stream of a request that has ended. */
  | { readonly kind: 'over' }
  /** Nothing is under way that could be behind it. */
  | { readonly kind: 'none' }
  /** So many could be, those that were given up included. */
  | { readonly kind: 'unclear'; readonly count: number };

/** Of our own housekeeping: nobody asks a person something because of these. All others may make a server ask. */
const innocent: ReadonlySet<string> = new Set([
  'initialize',
  'ping',
  'server/discover',
  'subscriptions/listen',
  'resources/subscribe',
  'resources/unsubscribe',
  'logging/setLevel',
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
]);

/** Whether a request with this method may make a server speak on its own. */
export const mayCause = (method: string | undefined): boolean => method !== undefined && !innocent.has(method);

/** What of the session the connection has, and not of one request. */
const ofSession = /\/list_changed$|^notifications\/(?:subscriptions|tasks)(?:\/|$)/;
export const isOfSession = (method: string): boolean =>
  method === NOTIFICATION.resourceUpdated || ofSession.test(method);

export interface Underway {
  readonly frame: OutboundFrame;
}

export interface Circumstances {
  /** The request in whose response stream it came, where the transport can tell. */
  readonly origin: OutboundFrame | undefined;
  /** Requests that were given up and may still be worked on. */
  readonly ghosts: number;
  /** False: all requests are of one client, and the newest will do. */
  readonly isShared: boolean;
}

export function causeOf<T extends Underway>(
  underway: IdTable<T>,
  { origin, ghosts, isShared }: Circumstances,
): Cause<T> {
  if (origin) {
    const owner = origin.id === undefined ? undefined : underway.get(origin.id);
    return owner?.frame === origin ? { kind: 'known', owner } : { kind: 'over' };
  }
  let newest: T | undefined;
  let count = 0;
  underway.forEach((one) => {
    // What was not written yet the server cannot know of.
    if (!mayCause(one.frame.method) || one.frame.phase === 'queued') return;
    count++;
    if (newest === undefined || (one.frame.id as number) > (newest.frame.id as number)) newest = one;
  });
  if (newest !== undefined && (!isShared || count + ghosts === 1)) return { kind: 'known', owner: newest };
  return count + ghosts === 0 ? { kind: 'none' } : { kind: 'unclear', count: count + ghosts };
}

/** What a server is told whose request reaches nobody. */
export function refusalFor(cause: Cause<unknown>, method: string): readonly [code: number, message: string] {
  const shown = method.slice(0, methodCharsMax);
  switch (cause.kind) {
    case 'known':
      return [RPC.methodNotFound, `the client cannot be asked for ${shown}`];
    case 'none':
      return [RPC.methodNotFound, `this client does not offer ${shown}`];
    case 'over':
      return [RPC.internalError, 'the request that this belongs to is over'];
    case 'unclear':
      return [RPC.internalError, unclear(cause.count)];
    default:
      return cause satisfies never;
  }
}

const methodCharsMax = 100;

const unclear = (count: number): string =>
  `ambiguous: ${count} ${count === 1 ? 'request that was given up may be' : 'requests are'} in progress, Hostler does not guess which one asked; set isolation per-client`;
