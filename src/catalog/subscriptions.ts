/**
 * Lets somebody hear of updates of a resource, over restarts of its server: one subscription at the server for all who want
 * the same, given back with the last of them. Clients that have an instance of their own subscribe there.
 * Not here: who wants what (subscription-table.ts), how a server is told (server-run.ts).
 *
 * Invariants: whoever subscribes may read the server, and hears of it for as long as it may; a server is held open for as long
 * as anybody is subscribed; what an instance tells reaches nobody but its own client; what a listener throws disturbs nobody.
 */
import type { Principal } from '../policy/call.js';
import { memberString } from '../wire/json-members.js';
import type { ServerRun } from './server-run.js';
import { type Subscriber, SubscriptionTable } from './subscription-table.js';

/** Where a subscription is: at the server that all share, or at an instance of a client's own. */
export interface Place {
  /** The name of the server, or the key of the instance. */
  readonly key: string;
  /** Holds it open; returns what gives it back, once. */
  hold(): () => void;
  /** Resolves when it can be spoken to. */
  ready(): Promise<void>;
  /** What runs there now. */
  run(): ServerRun | undefined;
}

export interface SubscriptionsParts {
  /** Throws unless the principal may read this of the server; asking is charged. */
  readonly chargeRead: (server: string, uri: string, principal: Principal) => void;
  /** Whether it still may. */
  readonly mayRead: (server: string, principal: Principal) => boolean;
  /** Throws when there is no such server, or no instance to be had. */
  readonly placeOf: (server: string, instance: string | undefined, owner: string) => Place;
  readonly onProblem: (error: unknown) => void;
}

export class Subscriptions {
  readonly #parts: SubscriptionsParts;
  readonly #table = new SubscriptionTable();

  constructor(parts: SubscriptionsParts) {
    this.#parts = parts;
  }

  /** Resolves when the server has agreed, with what gives the subscription back. */
  async subscribe(
    server: string,
    uri: string,
    principal: Principal,
    updated: (params: Buffer) => void,
    instance?: string | undefined,
  ): Promise<() => void> {
    const { chargeRead, placeOf } = this.#parts;
    chargeRead(server, uri, principal);
    const place = placeOf(server, instance, principal.id);
    const subscriber: Subscriber = { server, place: place.key, uri, principal, updated };
    const release = place.hold();
    let isBack = false;
    const giveBack = () => {
      if (isBack) return;
      isBack = true;
      this.#giveBack(subscriber, place);
      release();
    };
    try {
      this.#table.add(subscriber);
      await place.ready();
      await place.run()?.subscribe(uri);
    } catch (error) {
      giveBack();
      throw error;
    }
    return giveBack;
  }

  /** All that somebody wants to hear of. */
  uris(place: string): readonly string[] {
    return this.#table.uris(place);
  }

  /** A resource of the server changed, as this place says. */
  updated(place: string, params: Buffer | undefined): void {
    const uri = params && memberString(params, 'uri');
    if (params === undefined || uri === undefined) return;
    for (const { server, updated, principal } of this.#table.of(place, uri)) {
      try {
        if (this.#parts.mayRead(server, principal)) updated(params);
      } catch (error) {
        this.#parts.onProblem(error);
      }
    }
  }

  #giveBack(subscriber: Subscriber, place: Place): void {
    const { uri } = subscriber;
    const wasWanted = this.#table.has(place.key, uri);
    this.#table.remove(subscriber);
    if (wasWanted && !this.#table.has(place.key, uri)) place.run()?.unsubscribe(uri);
  }
}
