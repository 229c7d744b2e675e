/**
 * Pure state machine of one call from a modern client to a legacy server that may send questions during the call.
 * When the server asks, the call to it stays open and the client gets `input_required`. The client's next request continues it.
 * Not here: timers, promises and the server's requests (parked-call.ts).
 * Invariants: `over` is final. Every server request is answered, refused or withdrawn once. Each wait of the client ends once.
 */
export type ParkedState =
  /** The client waits and has not received a question. */
  | { readonly kind: 'running' }
  /** The client waits; the questions `asks` are gathered for one reply. */
  | { readonly kind: 'asking'; readonly asks: readonly string[]; readonly wasParked: boolean }
  /** The client got the questions `open`. `next`: questions that arrived later. `isDone`: the server has answered the call. */
  | {
      readonly kind: 'asked';
      readonly open: readonly string[];
      readonly next: readonly string[];
      readonly isDone: boolean;
    }
  /** The client has answered every question and waits for the result. */
  | { readonly kind: 'answering' }
  | { readonly kind: 'over' };

export type ParkedEvent =
  /** The server sent a question. */
  | { readonly kind: 'ask'; readonly key: string }
  | { readonly kind: 'withdrawn'; readonly key: string }
  /** The gathering time has ended. */
  | { readonly kind: 'gathered' }
  /** The client sent a request with answers to these questions. */
  | { readonly kind: 'resumed'; readonly answered: readonly string[] }
  /** The call to the server was answered or has failed. */
  | { readonly kind: 'finished' }
  /** The client cancelled its request before it was answered. */
  | { readonly kind: 'left' }
  | { readonly kind: 'expired' };

export type ParkedEffect =
  | { readonly do: 'gather' | 'stopGathering' | 'armExpiry' | 'disarmExpiry' }
  /** Answers the waiting client with these questions. */
  | { readonly do: 'reply'; readonly keys: readonly string[] }
  | { readonly do: 'answer' | 'refuse'; readonly key: string }
  /** Answers the waiting client with the server's result. */
  | { readonly do: 'settle' }
  /** Answers the waiting client with an error. */
  | { readonly do: 'giveUp' }
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
      // After a reply the client may disconnect and continue later.
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
      // parked-call.ts stores the result until the client continues the call.
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
