/** One server as `status` shows it. Times are on the host's clock; host/status.ts converts them to dates. */
import type { Reason } from './restart-plan.js';
import type { ServerState } from './server-state.js';

export interface Snapshot {
  readonly server: string;
  readonly state: ServerState['kind'];
  /** Stopped by an operator or disabled, also while the last run is being closed. */
  readonly isOff: boolean;
  readonly sinceMs: number;
  readonly run: number;
  /** Restarts in the window. */
  readonly restarts: number;
  /** Reason why the server is down; undefined while it runs or is idle. */
  readonly reason: Reason | undefined;
  readonly nextProbeAtMs: number | undefined;
  readonly retryAtMs: number | undefined;
  /** `onExhausted: "eject"` ended the probing. A parked server is probed for ever and is not ejected. */
  readonly ejected: boolean;
  readonly isProven: boolean;
  readonly waiting: number;
  readonly lastError: { readonly code: string; readonly message: string; readonly atMs: number } | undefined;
  readonly lastSuccessAtMs: number | undefined;
}

export interface SnapshotFacts extends Pick<Snapshot, 'server' | 'restarts' | 'waiting' | 'lastSuccessAtMs'> {
  readonly lastError: { readonly error: Reason; readonly atMs: number } | undefined;
}

export function snapshotOf(state: ServerState, facts: SnapshotFacts): Snapshot {
  const { server, restarts, waiting, lastError, lastSuccessAtMs } = facts;
  return {
    server,
    state: state.kind,
    isOff: isOff(state.kind === 'stopping' ? state.next : state.kind),
    sinceMs: state.sinceMs,
    run: state.run,
    restarts,
    reason: 'reason' in state ? state.reason : undefined,
    nextProbeAtMs: 'nextProbeAtMs' in state ? state.nextProbeAtMs : undefined,
    retryAtMs: state.kind === 'backing_off' ? state.retryAtMs : undefined,
    ejected: state.kind === 'ejected',
    isProven: (state.kind === 'ready' || state.kind === 'suspect') && state.isProven,
    waiting,
    lastError: lastError && {
      code: lastError.error.code,
      message: lastError.error.message,
      atMs: lastError.atMs,
    },
    lastSuccessAtMs,
  };
}

const isOff = (kind: string): boolean => kind === 'stopped' || kind === 'disabled';
