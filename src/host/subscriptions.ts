/**
 * Lets somebody hear of updates of a resource, over restarts of its server: one subscription at the server for all who want
 * the same, given back with the last of them.
 * Not here: who wants what (subscription-table.ts), how a server is told (server-run.ts).
 *
 * Invariants: whoever subscribes may read the server, and hears of it for as long as it may; a server is held open for as long as anybody is subscribed; what a
 * listener throws disturbs nobody.
 */
import type { Principal } from '../policy/call.js';
import type { Lease } from '../registry/lease.js';
import { memberString } from '../wire/json-members.js';
import type { ManagedServer } from './managed-server.js';
import type { ServerRun } from './server-run.js';
import { type Subscriber, SubscriptionTable } from './subscription-table.js';

export interface SubscriptionsParts {
  /** Throws unless the principal may read this of the server; asking is charged. */
  readonly chargeRead: (server: string, uri: string, principal: Principal) => void;
  /** Whether it still may. */
  readonly mayRead: (server: string, principal: Principal) => boolean;
  /** Throws when there is no such server. */
  readonly lease: (server: string) => Lease;
  readonly ready: (server: string) => Promise<ManagedServer>;
  readonly findServer: (server: string) => ManagedServer | undefined;
  readonly runOf: (managed: ManagedServer) => ServerRun | undefined;
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
  ): Promise<() => void> {
    const { chargeRead, lease, ready, runOf } = this.#parts;
    chargeRead(server, uri, principal);
    const held = lease(server);
    const subscriber: Subscriber = { server, uri, principal, updated };
    try {
      this.#table.add(subscriber);
      await runOf(await ready(server))?.subscribe(uri);
    } catch (error) {
      this.#giveBack(subscriber, held);
      throw error;
    }
    return () => this.#giveBack(subscriber, held);
  }

  /** All that somebody wants to hear of. */
  uris(server: string): readonly string[] {
    return this.#table.uris(server);
  }

  /** A resource of the server changed. */
  updated(server: string, params: Buffer | undefined): void {
    const uri = params && memberString(params, 'uri');
    if (params === undefined || uri === undefined) return;
    for (const { updated, principal } of this.#table.of(server, uri)) {
      try {
        if (this.#parts.mayRead(server, principal)) updated(params);
      } catch (error) {
        this.#parts.onProblem(error);
      }
    }
  }

  /** Again is as good as once. */
  #giveBack(subscriber: Subscriber, held: Lease): void {
    if (held.isReleased) return;
    const { findServer, runOf } = this.#parts;
    const { server, uri } = subscriber;
    const wasWanted = this.#table.has(server, uri);
    this.#table.remove(subscriber);
    if (wasWanted && !this.#table.has(server, uri)) {
      const managed = findServer(server);
      if (managed) runOf(managed)?.unsubscribe(uri);
    }
    held.release();
  }
}
