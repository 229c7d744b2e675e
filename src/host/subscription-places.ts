/**
 * Where subscriptions are held: at the server that all share, over all that takes its name, or at the instance of the client.
 * Not here: who subscribed (subscriptions.ts).
 */

import type { ServerRun } from '../catalog/server-run.js';
import type { Place } from '../catalog/subscriptions.js';
import type { Clock } from '../kernel/clock.js';
import type { CallTarget, TargetOf } from './call-target.js';
import { instanceKey } from './instances.js';
import type { Servers } from './servers.js';

export interface PlacesParts {
  readonly clock: Clock;
  readonly servers: Pick<Servers, 'get' | 'find' | 'ready' | 'registry'>;
  readonly targetOf: TargetOf;
  readonly runOf: (target: Pick<CallTarget, 'supervisor'>) => ServerRun | undefined;
}

/** Throws when there is no such server, or no instance to be had. */
export function placesOf(parts: PlacesParts): (server: string, instance: string | undefined, owner: string) => Place {
  return (server, instance, owner) => {
    const managed = parts.servers.get(server);
    const target = parts.targetOf(managed, instance, owner);
    if (instance === undefined || target === managed) return sharedPlace(parts, server);
    return ownPlace(parts, instanceKey(server, instance), target, () => managed.startMs);
  };
}

function sharedPlace({ servers, runOf }: PlacesParts, server: string): Place {
  return {
    key: server,
    hold: () => {
      const lease = servers.registry.lease(server);
      return () => lease.release();
    },
    ready: async () => {
      await servers.ready(server);
    },
    run: () => {
      const managed = servers.find(server);
      return managed && runOf(managed);
    },
  };
}

function ownPlace({ clock, runOf }: PlacesParts, key: string, target: CallTarget, startMs: () => number): Place {
  return {
    key,
    hold: () => {
      target.enter();
      return () => target.leave();
    },
    ready: async () => {
      await target.supervisor.acquire(clock.nowMs() + startMs(), undefined, startMs());
    },
    run: () => runOf(target),
  };
}
