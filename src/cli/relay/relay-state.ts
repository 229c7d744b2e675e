/**
 * The connection of a relay to its host, as a pure function.
 * Not here: sockets and processes (relay.ts, start-host.ts), requests (request-table.ts).
 * Invariants: at most one attempt is under way. After `failuresMax` failures in a row every request gets an answer, until a later
 * attempt succeeds. A relay whose host was ended with `hostler down` starts no other host.
 */

/** Why a host ends on purpose. */
export const endReasons = ['down', 'restart', 'idle', 'upgrade'] as const;
export type EndReason = (typeof endReasons)[number];

export type RelayState =
  /** An attempt to connect, which starts a host if none runs. */
  | { readonly kind: 'connecting'; readonly failures: number }
  | { readonly kind: 'joined'; readonly failures: number; readonly sinceMs: number }
  /** The host announced its end and answers what it has received. */
  | { readonly kind: 'leaving'; readonly reason: EndReason }
  | { readonly kind: 'waiting'; readonly failures: number }
  /** No host, and no need for one until the next request. Until `untilMs`, a newer relay may start the next host. */
  | { readonly kind: 'away'; readonly untilMs?: number }
  | { readonly kind: 'failed'; readonly reason: string; readonly retryAtMs: number }
  | { readonly kind: 'over' };

export type RelayEvent =
  | { readonly kind: 'begun' | 'connected' | 'lost' | 'request' | 'woke' }
  /** `isFinal`: another attempt would fail for the same reason. */
  | { readonly kind: 'failed'; readonly reason: string; readonly isFinal?: boolean }
  | { readonly kind: 'stopping'; readonly reason: EndReason };

export type RelayEffect =
  | { readonly do: 'connect' }
  /** The host is lost: answer its open requests, or send them again to the next host. */
  | { readonly do: 'settle' }
  /** Repeat the legacy session to the new host, and send the lines that wait. */
  | { readonly do: 'resume' }
  /** Answer the requests that wait with the reason. */
  | { readonly do: 'refuse'; readonly reason: string }
  | { readonly do: 'wake'; readonly atMs: number }
  | { readonly do: 'exit' };

type Step = readonly [RelayState, readonly RelayEffect[]];

const backoffFirstMs = 100;
const backoffMaxMs = 5_000;
const failuresMax = 6;
/** The loss of a younger host counts as a failure, so that a host that crashes on a request is not restarted in a loop. */
const provenMs = 5_000;

export const firstState: RelayState = { kind: 'away' };
export const stoppedReason = 'Hostler was stopped with hostler down';

/** `isNewer`: this relay is newer than the host, and starts the next one after an `upgrade`. */
export function step(state: RelayState, event: RelayEvent, nowMs: number, isNewer = false): Step {
  switch (event.kind) {
    case 'begun':
      return state.kind === 'away' ? connect(0) : [state, []];
    case 'request':
      if (state.kind === 'away') return nowMs < (state.untilMs ?? 0) ? wait(0, state.untilMs as number) : connect(0);
      if (state.kind !== 'failed') return [state, []];
      return nowMs >= state.retryAtMs ? connect(failuresMax - 1) : [state, [{ do: 'refuse', reason: state.reason }]];
    case 'woke':
      return state.kind === 'waiting' ? connect(state.failures) : [state, []];
    case 'connected':
      if (state.kind !== 'connecting') return [state, []];
      return [{ kind: 'joined', failures: state.failures, sinceMs: nowMs }, [{ do: 'resume' }]];
    case 'failed':
      if (state.kind !== 'connecting') return [state, []];
      return fail(event.isFinal ? failuresMax : state.failures + 1, event.reason, nowMs);
    case 'stopping':
      return state.kind === 'joined' ? [{ kind: 'leaving', reason: event.reason }, []] : [state, []];
    case 'lost':
      return lose(state, nowMs, isNewer);
    default:
      return event satisfies never;
  }
}

function lose(state: RelayState, nowMs: number, isNewer: boolean): Step {
  if (state.kind === 'leaving') {
    if (state.reason === 'down')
      return [{ kind: 'over' }, [{ do: 'settle' }, { do: 'refuse', reason: stoppedReason }, { do: 'exit' }]];
    if (state.reason !== 'upgrade') return [{ kind: 'away' }, [{ do: 'settle' }]];
    // An older relay waits, because it could start the older version again.
    return isNewer ? settled(connect(0)) : [{ kind: 'away', untilMs: nowMs + backoffFirstMs }, [{ do: 'settle' }]];
  }
  if (state.kind !== 'joined') return [state, []];
  if (nowMs - state.sinceMs >= provenMs) return settled(connect(0));
  return settled(fail(state.failures + 1, 'Hostler ended right after its start', nowMs));
}

const settled = ([state, effects]: Step): Step => [state, [{ do: 'settle' }, ...effects]];

const connect = (failures: number): Step => [{ kind: 'connecting', failures }, [{ do: 'connect' }]];

function fail(failures: number, reason: string, nowMs: number): Step {
  if (failures >= failuresMax)
    return [{ kind: 'failed', reason, retryAtMs: nowMs + backoffMaxMs }, [{ do: 'refuse', reason }]];
  return wait(failures, nowMs + Math.min(backoffMaxMs, backoffFirstMs * 2 ** (failures - 1)));
}

const wait = (failures: number, atMs: number): Step => [{ kind: 'waiting', failures }, [{ do: 'wake', atMs }]];
