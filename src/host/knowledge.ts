/**
 * All that is known of servers beside their calls, joined: what can be said of them at once, the runs that keep it up to date,
 * and who is subscribed to what they hold.
 * Not here: any decision; each part has its own file.
 */
import type { Clock } from '../kernel/clock.js';
import type { Pins } from '../policy/pins.js';
import { KnownServers } from './known-servers.js';
import type { Manifests } from './manifests-table.js';
import { ServerRuns } from './server-runs.js';
import type { Servers } from './servers.js';
import { Subscriptions, type SubscriptionsParts } from './subscriptions.js';

export interface KnowledgeParts {
  readonly clock: Clock;
  readonly servers: Servers;
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

  constructor({ clock, servers, pins, manifests, reads, clean, onProblem }: KnowledgeParts) {
    const findServer = (name: string) => servers.find(name);
    this.known = new KnownServers({ findServer, pins, manifests, onProblem });
    this.subscriptions = new Subscriptions({
      ...reads,
      lease: (server) => servers.registry.lease(server),
      ready: (server) => servers.ready(server),
      findServer,
      runOf: (managed) => this.runs.of(managed),
      onProblem,
    });
    const uris = (server: string) => this.subscriptions.uris(server);
    this.runs = new ServerRuns({ clock, findServer, known: this.known, uris, clean, onProblem });
  }
}
