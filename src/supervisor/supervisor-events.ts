/**
 * What a supervisor tells the world: one stream, shared by all servers, that log, metrics and dashboard read alike.
 * Not here: deciding anything, or when what is told (narrator.ts). A listener that throws or calls back disturbs nobody.
 */
import type { Freeze } from './correlated-failures.js';
import type { Reason } from './restart-plan.js';
import type { ServerState } from './server-state.js';

export type SupervisorEvent = {
  /** On the host's clock. */
  readonly atMs: number;
  readonly server: string;
  readonly run: number;
} & (
  | { readonly kind: 'state'; readonly from: ServerState['kind']; readonly to: ServerState['kind'] }
  /** A run failed and the next one follows after `delayMs`. */
  | { readonly kind: 'restart'; readonly restarts: number; readonly delayMs: number; readonly reason: Reason }
  /** `repeats`: how often in a row it was parked for this very reason before. Log those once, and count. */
  | { readonly kind: 'parked'; readonly reason: Reason; readonly nextProbeAtMs: number; readonly repeats: number }
  | { readonly kind: 'ejected'; readonly reason: Reason }
  | { readonly kind: 'auth_required'; readonly reason: Reason }
  /** Ready again after it was parked, ejected or without authorization for `afterMs`. */
  | { readonly kind: 'revived'; readonly afterMs: number }
  | { readonly kind: 'proven' }
  | { readonly kind: 'close_failed'; readonly error: unknown }
  /**
   * A fault of the whole host: for `forMs` no server is charged for what fails. Told once per freeze, by the server that
   * showed it; `servers` are those that fell together, or the one whose timer was late.
   */
  | ({ readonly kind: 'freeze' } & Freeze)
);

const kinds = {
  state: true,
  restart: true,
  parked: true,
  ejected: true,
  auth_required: true,
  revived: true,
  proven: true,
  close_failed: true,
  freeze: true,
} as const satisfies Record<SupervisorEvent['kind'], true>;

export const supervisorEventKinds = Object.keys(kinds) as readonly SupervisorEvent['kind'][];

/** The map for an Emitter. */
export interface SupervisorEvents {
  readonly supervisor: SupervisorEvent;
}

/** An event before it is stamped. */
export type Told = SupervisorEvent extends infer Event
  ? Event extends SupervisorEvent
    ? Omit<Event, 'atMs' | 'server'>
    : never
  : never;
