/**
 * Which of our requests is behind something that a server says on its own. Pure: it looks, and changes nothing.
 * What the channel knows is proof: the response stream of one request (HTTP), or the request that the server named. Everywhere
 * else the protocol has no word for it, and the only request in progress is taken for the cause, provided that no request of
 * another client ended lately (recent-clients.ts). Of two requests of one client, one whose own question has been open for a
 * while is not asking again: it waits for the answer, so it is the other that asks. (Not at once: a request may ask several
 * things together.)
 *
 * Invariant: in doubt there is no cause. A guess would show one client what is meant for another.
 */
import type { OutboundFrame } from './channel.js';
import type { IdTable } from './id-table.js';
import { type MessageOrigin, originId } from './message-origin.js';
import { type RecentClients, recentEndMs } from './recent-clients.js';
import { listenMethod, NOTIFICATION, RPC } from './rpc-codes.js';

export type Cause<T> =
  | { readonly kind: 'known'; readonly owner: T }
  /** It belongs to a request that has ended. */
  | { readonly kind: 'over' }
  /** Nothing is under way that could be behind it. */
  | { readonly kind: 'none' }
  /** It may be of a request that ended lately: while none is under way, or of another client than the one that is. */
  | { readonly kind: 'ended'; readonly count: number }
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
  /** `client`: opaque, the same for all requests of one client. */
  readonly options: { readonly client?: string | undefined };
}

export interface Circumstances<T> {
  /** The request that it belongs to, where the channel can tell. */
  readonly origin: MessageOrigin | undefined;
  /** Requests that were given up and may still be worked on. */
  readonly ghosts: number;
  /** False: all requests are of one client, and the newest will do. */
  readonly isShared: boolean;
  /** For a question: those that wait for the answer to one of their own, and so are not behind another while anybody else is. */
  readonly isWaiting?: ((one: T) => boolean) | undefined;
  /** Requests that ended lately. */
  readonly recent: Pick<RecentClients, 'hasOther' | 'hasAny'>;
  readonly nowMs: number;
}

export function causeOf<T extends Underway>(
  underway: IdTable<T>,
  { origin, ghosts, isShared, isWaiting, recent, nowMs }: Circumstances<T>,
): Cause<T> {
  if (origin !== undefined) {
    const id = originId(origin);
    const owner = id === undefined ? undefined : underway.get(id);
    // A server cannot mean what was not written to it yet: it guessed the number.
    return owner && owner.frame.phase !== 'queued' ? { kind: 'known', owner } : { kind: 'over' };
  }
  let newest: T | undefined;
  let count = 0;
  let asking: T | undefined;
  let askingCount = 0;
  let isOneClient = true;
  underway.forEach((one) => {
    // What was not written yet the server cannot know of.
    if (!mayCause(one.frame.method) || one.frame.phase === 'queued') return;
    count++;
    if (newest !== undefined && one.options.client !== newest.options.client) isOneClient = false;
    if (newest === undefined || (one.frame.id as number) > (newest.frame.id as number)) newest = one;
    if (isWaiting?.(one)) return;
    askingCount++;
    asking = one;
  });
  if (newest !== undefined && !isShared) return { kind: 'known', owner: newest };
  if (count + ghosts === 0) return recent.hasAny(nowMs) ? { kind: 'ended', count } : { kind: 'none' };
  const owner: T | undefined = count === 1 ? newest : isOneClient && askingCount === 1 ? asking : undefined;
  if (owner === undefined || ghosts > 0) return { kind: 'unclear', count, ghosts };
  return recent.hasOther(owner.options.client, nowMs) ? { kind: 'ended', count } : { kind: 'known', owner };
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
    case 'ended':
      return [
        RPC.internalError,
        `ambiguous: a request that ended in the last ${recentEndS} s ${mayStillWork}, ${advice}`,
      ];
    case 'unclear':
      return [RPC.internalError, unclear(cause.count, cause.ghosts)];
    default:
      return cause satisfies never;
  }
}

const methodCharsMax = 100;
const recentEndS = recentEndMs / 1_000;
const mayStillWork = 'may still be at work';
const advice = 'Hostler does not guess which one asked; set isolation: per-client';

function unclear(count: number, ghosts: number): string {
  const working = count === 0 ? [] : [`${count} ${count === 1 ? 'request is' : 'requests are'} in progress`];
  const left = `${ghosts} ${count > 0 ? '' : ghosts === 1 ? 'request ' : 'requests '}`;
  const gone = ghosts === 0 ? [] : [`${left}${ghosts === 1 ? 'was' : 'were'} given up and ${mayStillWork}`];
  return `ambiguous: ${[...working, ...gone].join(' and ')}, ${advice}`;
}
