/**
 * Which of our requests is behind something that a server says on its own. Pure: it looks, and changes nothing.
 * A stream of HTTP belongs to one request; everywhere else the protocol has no word for it, and only being the one request
 * that is under way makes it certain. Of two, one whose own question has been open for a while is not asking again: it waits
 * for the answer, so it is the other that asks. (Not at once: a request may ask several things together.)
 *
 * Invariant: in doubt there is no cause. Whoever guesses shows one client what is meant for another.
 */
import type { OutboundFrame } from './channel.js';
import type { IdTable } from './id-table.js';
import { listenMethod, NOTIFICATION, RPC } from './rpc-codes.js';

export type Cause<T> =
  | { readonly kind: 'known'; readonly owner: T }
  /** It came in the stream of a request that has ended. */
  | { readonly kind: 'over' }
  /** Nothing is under way that could be behind it. */
  | { readonly kind: 'none' }
  /** So many that are under way could be, and so many that were given up. */
  | { readonly kind: 'unclear'; readonly count: number; readonly ghosts: number };

/** Of our own housekeeping: nobody asks a person something because of these. All others may make a server ask. */
const innocent: ReadonlySet<string> = new Set([
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

/** Whether a request with this method may make a server speak on its own. */
export const mayCause = (method: string | undefined): boolean => method !== undefined && !innocent.has(method);

/** What of the session the connection has, and not of one request. */
const ofSession = /\/list_changed$|^notifications\/(?:subscriptions|tasks)(?:\/|$)/;
export const isOfSession = (method: string): boolean =>
  method === NOTIFICATION.resourceUpdated || ofSession.test(method);

export interface Underway {
  readonly frame: OutboundFrame;
}

export interface Circumstances<T> {
  /** The request in whose response stream it came, where the transport can tell. */
  readonly origin: OutboundFrame | undefined;
  /** Requests that were given up and may still be worked on. */
  readonly ghosts: number;
  /** False: all requests are of one client, and the newest will do. */
  readonly isShared: boolean;
  /** For a question: those that wait for the answer to one of their own, and so are not behind another while anybody else is. */
  readonly isWaiting?: ((one: T) => boolean) | undefined;
}

export function causeOf<T extends Underway>(
  underway: IdTable<T>,
  { origin, ghosts, isShared, isWaiting }: Circumstances<T>,
): Cause<T> {
  if (origin) {
    const owner = origin.id === undefined ? undefined : underway.get(origin.id);
    return owner?.frame === origin ? { kind: 'known', owner } : { kind: 'over' };
  }
  let newest: T | undefined;
  let count = 0;
  let asking: T | undefined;
  let askingCount = 0;
  underway.forEach((one) => {
    // What was not written yet the server cannot know of.
    if (!mayCause(one.frame.method) || one.frame.phase === 'queued') return;
    count++;
    if (newest === undefined || (one.frame.id as number) > (newest.frame.id as number)) newest = one;
    if (isWaiting?.(one)) return;
    askingCount++;
    asking = one;
  });
  if (newest !== undefined && (!isShared || count + ghosts === 1)) return { kind: 'known', owner: newest };
  if (asking !== undefined && askingCount + ghosts === 1) return { kind: 'known', owner: asking };
  return count + ghosts === 0 ? { kind: 'none' } : { kind: 'unclear', count, ghosts };
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
      return [RPC.internalError, unclear(cause.count, cause.ghosts)];
    default:
      return cause satisfies never;
  }
}

const methodCharsMax = 100;

function unclear(count: number, ghosts: number): string {
  const working = count === 0 ? [] : [`${count} ${count === 1 ? 'request is' : 'requests are'} in progress`];
  const left = `${ghosts} ${count > 0 ? '' : ghosts === 1 ? 'request ' : 'requests '}`;
  const gone = ghosts === 0 ? [] : [`${left}${ghosts === 1 ? 'was' : 'were'} given up and may still be at work`];
  return `ambiguous: ${[...working, ...gone].join(' and ')}, Hostler does not guess which one asked; set isolation per-client`;
}
