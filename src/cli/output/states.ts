/** The words, symbols and colours of server states. The status, the log and `why` use the same words. */
import type { StatusRow } from '../../host/status.js';
import { type Span, type Style, span } from './styled.js';

type State = StatusRow['state'];

/** Texts for states whose internal name is unclear to a user. */
const words: Readonly<Partial<Record<State, string>>> = {
  registered: 'asleep',
  connecting: 'starting',
  backing_off: 'restarting',
  closing: 'stopping',
  auth_required: 'needs login',
};

const looks: Readonly<Record<State, readonly [Style, symbol: string]>> = {
  registered: ['dim', '○'],
  connecting: ['busy', '◐'],
  ready: ['good', '●'],
  suspect: ['busy', '◐'],
  backing_off: ['busy', '◐'],
  parked: ['bad', '✗'],
  ejected: ['bad', '✗'],
  auth_required: ['busy', '!'],
  closing: ['dim', '◌'],
  stopping: ['dim', '◌'],
  stopped: ['dim', '■'],
  disabled: ['dim', '–'],
};

export const stateText = (state: State): string => words[state] ?? state;

/** An entry that was refused is disabled, but not on purpose. */
export function stateSpan({ state, problem }: { readonly state: State; readonly problem?: unknown }): Span {
  const [style, symbol] = problem === undefined ? looks[state] : looks.parked;
  return span(style, problem === undefined ? stateText(state) : 'refused', symbol);
}
