/**
 * All that is known of servers beside their calls, joined: what can be said of them at once, the runs that keep it up to date,
 * and who is subscribed to what they hold.
 * Not here: any decision; each part has its own file.
 */
import type { Clock } from '../kernel/clock.js';
import type { Pins } from '../policy/pins.js';
import type { TargetOf } from './call-target.js';
import { KnownServers } from './known-servers.js';
import type { Manifests } from './manifests-table.js';
import { ServerRuns } from './server-runs.js';
import type { Servers } from './servers.js';
import { placesOf } from './subscription-places.js';
import { Subscriptions, type SubscriptionsParts } from './subscriptions.js';

export interface KnowledgeParts {
  readonly clock: Clock;
  readonly servers: Servers;
  readonly targetOf: TargetOf;
  readonly pins: Pins;
  readonly manifests: Manifests | undefined;
  readonly reads: Pick<SubscriptionsParts, 'chargeRead' | 'mayRead'>;
  readonly clean: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

export class Knowledge {
  readonly known: KnownServers;
  readonly runs: ServerRuns;
  readonly subscriptions: Subscriptions;

  constructor({ clock, servers, targetOf, pins, manifests, reads, clean, onProblem }: KnowledgeParts) {
    const findServer = (name: string) => servers.find(name);
    this.known = new KnownServers({ findServer, pins, manifests, onProblem });
    this.subscriptions = new Subscriptions({
      ...reads,
      placeOf: placesOf({ clock, servers, targetOf, runOf: (target) => this.runs.of(target) }),
      onProblem,
    });
    const uris = (server: string) => this.subscriptions.uris(server);
    this.runs = new ServerRuns({ clock, findServer, known: this.known, uris, clean, onProblem });
  }
}
