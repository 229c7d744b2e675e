/**
 * What a state means to the shell around it (supervisor.ts). Pure; how one state leads to another is in server-state.ts.
 */
import type { ServerState } from './server-state.js';

/** When a server that is not up is to be started by its timer. */
export const wakesAtMs = (state: ServerState): number | undefined =>
  state.kind === 'backing_off' ? state.retryAtMs : 'nextProbeAtMs' in state ? state.nextProbeAtMs : undefined;

/** Nothing runs and nothing is being brought up. */
export const isAtRest = (kind: ServerState['kind']): boolean =>
  ['registered', 'stopped', 'disabled', 'parked', 'ejected', 'auth_required'].includes(kind);

/** Whether a run is closed because somebody wants it to end, or because nobody needs it; not because it failed. */
export const isOrderly = (state: ServerState): boolean =>
  state.kind === 'stopping' || (state.kind === 'closing' && state.next.kind === 'registered');
