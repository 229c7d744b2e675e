/**
 * Subscriptions to resource updates, which survive restarts of the server. Subscribers of the same resource share one
 * subscription at the server, which ends with the last subscriber. A client with its own instance subscribes at that instance.
 * Not here: requests to the server (server-run.ts).
 *
 * Invariants: a subscriber gets updates only while it may read the server. A server with subscribers keeps running. Updates of
 * an instance reach only its own client. A listener that throws does not affect other listeners.
 */
import { HostError } from '../kernel/errors.js';
import { principalKey } from '../policy/composite-key.js';
import type { Principal } from '../policy/operation.js';
import { memberString } from '../wire/json-members.js';
import type { ServerRun } from './server-run.js';

/** Limit per server or instance. */
export const subscribedUrisMax = 1_000;
/** Limit for the total length of a server's URIs, which are sent in one request. */
export const subscribedCharsMax = 1024 * 1024;
/** Limit per principal and server. */
export const subscriptionsPerPrincipalMax = 100;

/** Where a subscription is made: at the shared server, or at an instance of one client. */
export interface SubscriptionTarget {
  /** Server name, or key of the instance. */
  readonly key: string;
  /** Keeps the target running; the returned function releases it. */
  hold(): () => void;
  /** Resolves when the target accepts requests. */
  ready(): Promise<void>;
  run(): ServerRun | undefined;
}

interface SubscriptionsParts {
  /** Throws unless the principal may read the resource; charges one call. */
  readonly chargeRead: (server: string, uri: string, principal: Principal) => void;
  readonly mayRead: (server: string, principal: Principal) => boolean;
  /** Throws when there is no such server, or no instance is available. */
  readonly targetOf: (server: string, instance: string | undefined, owner: string) => SubscriptionTarget;
  readonly onProblem: (error: unknown) => void;
}

export interface Subscriber {
  readonly server: string;
  readonly target: string;
  readonly uri: string;
  readonly principal: Principal;
  readonly updated: (params: Buffer) => void;
  /** Keeps a server that was added again under the name running, too. */
  readonly holdAgain: () => void;
}

export class Subscriptions {
  readonly #parts: SubscriptionsParts;
  readonly #table = new SubscriptionTable();

  constructor(parts: SubscriptionsParts) {
    this.#parts = parts;
  }

  /** Resolves when the server has accepted the subscription. The returned function unsubscribes. */
  async subscribe(
    server: string,
    uri: string,
    principal: Principal,
    updated: (params: Buffer) => void,
    instance?: string | undefined,
  ): Promise<() => void> {
    const { chargeRead, targetOf } = this.#parts;
    chargeRead(server, uri, principal);
    const target = targetOf(server, instance, principal.id);
    let release = target.hold();
    const holdAgain = () => {
      const before = release;
      release = target.hold();
      before();
    };
    const subscriber: Subscriber = { server, target: target.key, uri, principal, updated, holdAgain };
    let isOver = false;
    const unsubscribe = () => {
      if (isOver) return;
      isOver = true;
      if (this.#table.remove(subscriber)) target.run()?.unsubscribe(uri);
      release();
    };
    try {
      this.#table.add(subscriber);
      await target.ready();
      await target.run()?.subscribe(uri);
    } catch (error) {
      unsubscribe();
      throw error;
    }
    return unsubscribe;
  }

  uris(target: string): readonly string[] {
    return this.#table.uris(target);
  }

  /** Call it when a removed server was added again: its subscribers are still subscribed. */
  added(server: string): void {
    for (const { holdAgain } of this.#table.all(server)) holdAgain();
  }

  /** Handles `notifications/resources/updated` of a server or instance. */
  updated(target: string, params: Buffer | undefined): void {
    const uri = params && memberString(params, 'uri');
    if (params === undefined || uri === undefined) return;
    for (const { server, updated, principal } of this.#table.of(target, uri)) {
      try {
        if (this.#parts.mayRead(server, principal)) updated(params);
      } catch (error) {
        this.#parts.onProblem(error);
      }
    }
  }
}

interface TargetRow {
  readonly byUri: Map<string, Set<Subscriber>>;
  readonly byPrincipal: Map<string, number>;
  chars: number;
}

/** Subscribers by target and URI, bounded per target and per principal. */
export class SubscriptionTable {
  readonly #rows = new Map<string, TargetRow>();

  add(subscriber: Subscriber): void {
    const { server, target, uri } = subscriber;
    const principal = principalKey(subscriber.principal);
    const row: TargetRow = this.#rows.get(target) ?? { byUri: new Map(), byPrincipal: new Map(), chars: 0 };
    const own = row.byPrincipal.get(principal) ?? 0;
    if (own >= subscriptionsPerPrincipalMax) throw tooMany(server, 'principal', subscriptionsPerPrincipalMax);
    const subscribers = row.byUri.get(uri);
    if (!subscribers) {
      if (row.byUri.size >= subscribedUrisMax) throw tooMany(server, 'server', subscribedUrisMax);
      if (row.chars + uri.length > subscribedCharsMax) throw tooMany(server, 'characters', subscribedCharsMax);
      row.byUri.set(uri, new Set([subscriber]));
      row.chars += uri.length;
    } else subscribers.add(subscriber);
    row.byPrincipal.set(principal, own + 1);
    this.#rows.set(target, row);
  }

  /** True: the subscriber was the last one of its URI. A subscriber that is not in the table has no effect. */
  remove(subscriber: Subscriber): boolean {
    const { target, uri } = subscriber;
    const row = this.#rows.get(target);
    const subscribers = row?.byUri.get(uri);
    if (!row || !subscribers?.delete(subscriber)) return false;
    const principal = principalKey(subscriber.principal);
    const own = (row.byPrincipal.get(principal) ?? 1) - 1;
    if (own === 0) row.byPrincipal.delete(principal);
    else row.byPrincipal.set(principal, own);
    if (subscribers.size > 0) return false;
    row.byUri.delete(uri);
    row.chars -= uri.length;
    if (row.byUri.size === 0) this.#rows.delete(target);
    return true;
  }

  all(target: string): Subscriber[] {
    return [...(this.#rows.get(target)?.byUri.values() ?? [])].flatMap((subscribers) => [...subscribers]);
  }

  uris(target: string): string[] {
    return [...(this.#rows.get(target)?.byUri.keys() ?? [])];
  }

  /** Subscribers of a resource also get the updates that a server reports for its sub-resources. */
  of(target: string, uri: string): Subscriber[] {
    const byUri = this.#rows.get(target)?.byUri;
    if (!byUri) return [];
    const exact = byUri.get(uri);
    if (exact) return [...exact];
    return [...byUri].filter(([whole]) => isPart(uri, whole)).flatMap(([, subscribers]) => [...subscribers]);
  }
}

/** Compares at a path boundary: `file:///ab` is not a part of `file:///a`. */
const isPart = (uri: string, whole: string): boolean =>
  uri.startsWith(whole) && (whole.endsWith('/') || ['/', '#', '?'].includes(uri.charAt(whole.length)));

const tooMany = (server: string, reason: keyof typeof limitTexts, limit: number): HostError =>
  new HostError('overloaded', `server '${server}': ${limitTexts[reason]}`, {
    server,
    reason: `subscriptions_per_${reason}`,
    limit,
    execution: 'not_executed',
    hint: 'unsubscribe from resources that are no longer needed',
  });

const limitTexts = {
  principal: `this principal is subscribed to ${subscriptionsPerPrincipalMax} of its resources already`,
  server: `${subscribedUrisMax} of its resources have subscriptions already`,
  characters: `the URIs of its subscribed resources would have more than ${subscribedCharsMax} characters in total`,
};
