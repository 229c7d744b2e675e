/**
 * The state of one call of a modern client whose legacy server may ask in the middle of it, as a pure function.
 * The call is parked upstream, the client's request is answered with `input_required`, and its next request goes on from there.
 * Not here: timers, promises and the server's requests (parked-call.ts).
 * Invariants: every request of the server is answered, refused or withdrawn once, and so is every wait; `over` is final.
 */
export type ParkedState =
  /** The client waits and was never asked. */
  | { readonly kind: 'running' }
  /** The client waits; `asks` are gathered until the reply is written. */
  | { readonly kind: 'asking'; readonly asks: readonly string[]; readonly wasParked: boolean }
  /** The reply with `open` was written. `next` came since; `isDone`: the server has answered. */
  | {
      readonly kind: 'asked';
      readonly open: readonly string[];
      readonly next: readonly string[];
      readonly isDone: boolean;
    }
  /** The client came back and waits; all it was asked is answered. */
  | { readonly kind: 'answering' }
  | { readonly kind: 'over' };

export type ParkedEvent =
  /** By the server. */
  | { readonly kind: 'ask'; readonly key: string }
  | { readonly kind: 'withdrawn'; readonly key: string }
  /** The time to gather is up. */
  | { readonly kind: 'gathered' }
  /** The client came back with answers to these. */
  | { readonly kind: 'resumed'; readonly answered: readonly string[] }
  /** The server's answer to the call is there, or there will be none. */
  | { readonly kind: 'finished' }
  /** The client left before it was answered. */
  | { readonly kind: 'left' }
  | { readonly kind: 'expired' };

export type ParkedEffect =
  | { readonly do: 'gather' | 'stopGathering' | 'armExpiry' | 'disarmExpiry' }
  /** Ends the wait with what is asked. */
  | { readonly do: 'reply'; readonly keys: readonly string[] }
  | { readonly do: 'answer' | 'refuse'; readonly key: string }
  /** Ends the wait with what the server answered. */
  | { readonly do: 'settle' }
  /** Ends the wait with an error. */
  | { readonly do: 'giveUp' }
  /** Cancels the call upstream. */
  | { readonly do: 'abort' }
  | { readonly do: 'forget' };

export type ParkedStep = readonly [state: ParkedState, effects: readonly ParkedEffect[]];

export function stepParked(state: ParkedState, event: ParkedEvent): ParkedStep {
  switch (event.kind) {
    case 'ask':
      return ask(state, event.key);
    case 'withdrawn':
      return withdraw(state, event.key);
    case 'gathered':
      if (state.kind !== 'asking') return [state, []];
      return [
        { kind: 'asked', open: state.asks, next: [], isDone: false },
        [{ do: 'reply', keys: state.asks }, { do: 'armExpiry' }],
      ];
    case 'resumed':
      return resume(state, event.answered);
    case 'finished':
      return finish(state);
    case 'left':
      // After a reply the client may disconnect and come back.
      if (state.kind === 'asked' || state.kind === 'over') return [state, []];
      return [
        over,
        [...stopGathering(state), { do: 'giveUp' }, { do: 'abort' }, ...refuseAll(state), { do: 'forget' }],
      ];
    case 'expired':
      if (state.kind !== 'asked') return [state, []];
      return [over, [{ do: 'abort' }, ...refuseAll(state), { do: 'forget' }]];
    default:
      return event satisfies never;
  }
}

const over: ParkedState = { kind: 'over' };

function ask(state: ParkedState, key: string): ParkedStep {
  switch (state.kind) {
    case 'running':
    case 'answering':
      return [{ kind: 'asking', asks: [key], wasParked: state.kind === 'answering' }, [{ do: 'gather' }]];
    case 'asking':
      return [{ ...state, asks: [...state.asks, key] }, []];
    case 'asked':
      return state.isDone ? [state, [{ do: 'refuse', key }]] : [{ ...state, next: [...state.next, key] }, []];
    case 'over':
      return [state, [{ do: 'refuse', key }]];
    default:
      return state satisfies never;
  }
}

function withdraw(state: ParkedState, key: string): ParkedStep {
  const without = (keys: readonly string[]) => keys.filter((each) => each !== key);
  if (state.kind === 'asked') return [{ ...state, open: without(state.open), next: without(state.next) }, []];
  if (state.kind !== 'asking') return [state, []];
  const asks = without(state.asks);
  if (asks.length > 0) return [{ ...state, asks }, []];
  return [{ kind: state.wasParked ? 'answering' : 'running' }, [{ do: 'stopGathering' }]];
}

function resume(state: ParkedState, answered: readonly string[]): ParkedStep {
  if (state.kind !== 'asked') return [state, []];
  if (state.isDone) return [over, [{ do: 'disarmExpiry' }, { do: 'settle' }, { do: 'forget' }]];
  const given = state.open.filter((key) => answered.includes(key));
  const asks = [...state.open.filter((key) => !given.includes(key)), ...state.next];
  const effects: ParkedEffect[] = [{ do: 'disarmExpiry' }, ...given.map((key) => ({ do: 'answer', key }) as const)];
  if (asks.length === 0) return [{ kind: 'answering' }, effects];
  return [{ kind: 'asking', asks, wasParked: true }, [...effects, { do: 'gather' }]];
}

function finish(state: ParkedState): ParkedStep {
  switch (state.kind) {
    case 'over':
      return [state, []];
    case 'asked':
      // Stored until the client comes back.
      return [{ ...state, open: [], next: [], isDone: true }, refuseAll(state)];
    default:
      return [over, [...stopGathering(state), { do: 'settle' }, ...refuseAll(state), { do: 'forget' }]];
  }
}

const stopGathering = (state: ParkedState): ParkedEffect[] =>
  state.kind === 'asking' ? [{ do: 'stopGathering' }] : [];

function refuseAll(state: ParkedState): ParkedEffect[] {
  const keys = state.kind === 'asking' ? state.asks : state.kind === 'asked' ? [...state.open, ...state.next] : [];
  return keys.map((key) => ({ do: 'refuse', key }));
}
