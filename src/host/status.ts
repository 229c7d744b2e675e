/**
 * One row of `status`: what is true of a server at this instant, from those who know it.
 */

import type { Circuit } from '../policy/breaker.js';
import type { RegistryRow } from '../registry/registry.js';
import type { Snapshot } from '../supervisor/snapshot.js';
import type { ManagedServer } from './managed-server.js';

export interface StatusRow {
  readonly name: string;
  readonly state: Snapshot['state'];
  /** How long it has been in this state. */
  readonly forMs: number;
  readonly run: number;
  readonly lazy: boolean;
  readonly active: boolean;
  readonly ref_count: number;
  readonly running: number;
  readonly queue: number;
  readonly restart_count: number;
  readonly consecutive_failures: number;
  readonly circuit: Circuit;
  readonly ejected: boolean;
  /** From now; undefined when nothing is planned. */
  readonly nextProbeInMs: number | undefined;
  readonly lastError: { readonly code: string; readonly message: string; readonly agoMs: number } | undefined;
  readonly lastSuccessAgoMs: number | undefined;
  readonly tools: number;
}

export function statusRow(
  row: RegistryRow,
  { supervisor, breaker, load, tools, definition }: ManagedServer,
  nowMs: number,
): StatusRow {
  const snapshot = supervisor.snapshot();
  const { lastError, lastSuccessAtMs, nextProbeAtMs } = snapshot;
  return {
    name: row.name,
    state: snapshot.state,
    forMs: nowMs - snapshot.sinceMs,
    run: snapshot.run,
    lazy: definition.isLazy,
    active: snapshot.state === 'ready' || snapshot.state === 'suspect',
    ref_count: row.ref_count,
    running: load.running,
    queue: load.waiting,
    restart_count: snapshot.restarts,
    consecutive_failures: breaker.failures,
    circuit: breaker.circuit(nowMs),
    ejected: snapshot.ejected,
    nextProbeInMs: nextProbeAtMs === undefined ? undefined : Math.max(0, nextProbeAtMs - nowMs),
    lastError: lastError && { code: lastError.code, message: lastError.message, agoMs: nowMs - lastError.atMs },
    lastSuccessAgoMs: lastSuccessAtMs === undefined ? undefined : nowMs - lastSuccessAtMs,
    tools: tools.length,
  };
}
