/**
 * Who wants to hear of which resource of which server.
 * Not here: telling the server (server-run.ts), who may (subscriptions.ts).
 *
 * Invariants: a resource is wanted exactly as long as somebody is in the table for it; what is kept for one server is bounded
 * in resources, in characters, and for each principal.
 */
import { HostError } from '../kernel/errors.js';
import type { Principal } from '../policy/call.js';
import { principalKey } from '../policy/composite-key.js';

/** Of one server or instance. */
export const subscribedUrisMax = 1_000;
/** All of one server's together: they go out in one request. */
export const subscribedCharsMax = 1024 * 1024;
/** Of one principal, at one server. */
export const subscriptionsPerPrincipalMax = 100;

export interface Subscriber {
  readonly server: string;
  /** The server itself, or an instance of a client's own. Everything is kept by it. */
  readonly place: string;
  readonly uri: string;
  readonly principal: Principal;
  readonly updated: (params: Buffer) => void;
}

interface ServerRow {
  readonly byUri: Map<string, Set<Subscriber>>;
  readonly byPrincipal: Map<string, number>;
  chars: number;
}

export class SubscriptionTable {
  readonly #rows = new Map<string, ServerRow>();

  /** Throws when there are too many. */
  add(subscriber: Subscriber): void {
    const { server, place, uri } = subscriber;
    const principal = principalKey(subscriber.principal);
    const row: ServerRow = this.#rows.get(place) ?? { byUri: new Map(), byPrincipal: new Map(), chars: 0 };
    const own = row.byPrincipal.get(principal) ?? 0;
    if (own >= subscriptionsPerPrincipalMax) throw tooMany(server, 'principal', subscriptionsPerPrincipalMax);
    const known = row.byUri.get(uri);
    if (!known && row.byUri.size >= subscribedUrisMax) throw tooMany(server, 'server', subscribedUrisMax);
    if (!known && row.chars + uri.length > subscribedCharsMax) throw tooMany(server, 'characters', subscribedCharsMax);
    this.#rows.set(place, row);
    row.byPrincipal.set(principal, own + 1);
    if (known) known.add(subscriber);
    else {
      row.byUri.set(uri, new Set([subscriber]));
      row.chars += uri.length;
    }
  }

  /** One that is not there is as good as removed. */
  remove(subscriber: Subscriber): void {
    const { place, uri } = subscriber;
    const principal = principalKey(subscriber.principal);
    const row = this.#rows.get(place);
    const subscribers = row?.byUri.get(uri);
    if (!row || !subscribers?.delete(subscriber)) return;
    const own = (row.byPrincipal.get(principal) ?? 1) - 1;
    if (own === 0) row.byPrincipal.delete(principal);
    else row.byPrincipal.set(principal, own);
    if (subscribers.size > 0) return;
    row.byUri.delete(uri);
    row.chars -= uri.length;
    if (row.byUri.size === 0) this.#rows.delete(place);
  }

  has(place: string, uri: string): boolean {
    return this.#rows.get(place)?.byUri.has(uri) ?? false;
  }

  /** All that somebody wants to hear of. */
  uris(place: string): string[] {
    return [...(this.#rows.get(place)?.byUri.keys() ?? [])];
  }

  /** Whoever is to hear of this one. A server may tell of a part of what was subscribed to: then it is whoever wants the whole. */
  of(place: string, uri: string): Subscriber[] {
    const byUri = this.#rows.get(place)?.byUri;
    if (!byUri) return [];
    const exact = byUri.get(uri);
    if (exact) return [...exact];
    return [...byUri].filter(([whole]) => isPart(uri, whole)).flatMap(([, subscribers]) => [...subscribers]);
  }
}

/** At a boundary of its path: `file:///ab` is no part of `file:///a`. */
const isPart = (uri: string, whole: string): boolean =>
  uri.startsWith(whole) && (whole.endsWith('/') || ['/', '#', '?'].includes(uri.charAt(whole.length)));

const tooMany = (server: string, reason: string, limit: number): HostError =>
  new HostError('overloaded', `server '${server}': ${stories[reason]}`, {
    server,
    reason: `subscriptions_per_${reason}`,
    limit,
    execution: 'not_executed',
    hint: 'unsubscribe from resources that are no longer of interest',
  });

const stories: Readonly<Record<string, string>> = {
  principal: `whoever asks is subscribed to ${subscriptionsPerPrincipalMax} of its resources already`,
  server: `${subscribedUrisMax} of its resources are subscribed to already`,
  characters: 'the addresses of the resources that are subscribed to are too long together',
};
