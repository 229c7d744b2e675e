/** Counts the current uses of a host. They decide when a host that a relay started ends, or is replaced by a newer version. */
import type { ServedWorkers } from '../../broker/serve-workers.js';
import type { Gateway } from '../../gateway/gateway.js';
import type { Host } from '../../host/host.js';
import type { Usage } from './idle-exit.js';

interface Parts {
  readonly host: Pick<Host, 'status'>;
  readonly gateway: Pick<Gateway, 'httpUsage'>;
  readonly workers: Pick<ServedWorkers, 'status'> | undefined;
}

/** Number of calls, leases, HTTP requests and streams, and workers. */
function inUse({ host, gateway, workers }: Parts): number {
  const calls = host.status().reduce((sum, { running, queue, leases }) => sum + running + queue + leases.bindings, 0);
  return calls + gateway.httpUsage.open + (workers?.status().connectedWorkers ?? 0);
}

export const usageOf = (parts: Parts, relays: number): Usage => ({
  open: relays + inUse(parts),
  total: parts.gateway.httpUsage.answers + (parts.workers?.status().calls ?? 0),
});

/**
 * True if a replacement would lose no call and no state of a session. Relays repeat their sessions to the next host; HTTP clients
 * cannot, and an instance of a server belongs to one client. An idle shared server has no session.
 */
export function isReplaceable(parts: Parts): boolean {
  const hasInstance = parts.host.status().some(({ instances }) => instances > 0);
  return inUse(parts) === 0 && parts.gateway.httpUsage.sessions === 0 && !hasInstance;
}
