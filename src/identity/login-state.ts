/**
 * The wait for the redirect of a login that a person has started, as a pure function: the state after an event.
 * Not here: the steps before and after the wait, and the effects (login.ts); the listener (callback.ts).
 *
 * Invariants: a redirect with another `state` changes nothing, however often it comes. A code is redeemed at most once, and only if
 * `iss` equals the issuer exactly. Text of the redirect other than the code is neither kept nor shown.
 */

/** What the redirect of this login must contain. */
interface Expected {
  readonly state: string;
  readonly issuer: string;
  /** The authorization server says that it sends `iss`. */
  readonly needsIss: boolean;
  readonly redirectUri: string;
}

export type LoginState =
  | { readonly kind: 'preparing' }
  | { readonly kind: 'waiting'; readonly expected: Expected; readonly wrongPastes: number }
  | { readonly kind: 'redeeming'; readonly code: string }
  | { readonly kind: 'refused'; readonly reason: string };

export type LoginEvent =
  | { readonly kind: 'expired' | 'cancelled' }
  | { readonly kind: 'returned'; readonly params: URLSearchParams }
  | { readonly kind: 'pasted'; readonly text: string };

const pastesMax = 3;
const urlCharsMax = 16 * 1024;

/** Returns the same object if the event changes nothing. */
export function step(state: LoginState, event: LoginEvent): LoginState {
  if (state.kind === 'refused') return state;
  switch (event.kind) {
    case 'returned':
      return state.kind === 'waiting' ? (judge(event.params, state.expected) ?? state) : state;
    case 'pasted':
      return state.kind === 'waiting' ? pasted(state, event.text) : state;
    case 'expired':
      // A code that was sent may still become a grant.
      return state.kind === 'redeeming' ? state : refuse('login_expired');
    case 'cancelled':
      return refuse('cancelled');
    default:
      return event satisfies never;
  }
}

const refuse = (reason: string): LoginState => ({ kind: 'refused', reason });

/** Undefined: the redirect belongs to another login, or to none. */
function judge(params: URLSearchParams, { state, issuer, needsIss }: Expected): LoginState | undefined {
  const only = (name: string) => (params.getAll(name).length === 1 ? (params.get(name) ?? '') : undefined);
  if (only('state') !== state) return undefined;
  const isIssuer = params.has('iss') ? only('iss') === issuer : !needsIss;
  if (!isIssuer) return refuse('issuer_mismatch');
  if (params.has('error')) return refuse(only('error') === 'access_denied' ? 'login_denied' : 'login_failed');
  const code = only('code');
  return code ? { kind: 'redeeming', code } : refuse('login_failed');
}

function pasted(state: LoginState & { kind: 'waiting' }, text: string): LoginState {
  const { expected } = state;
  const trimmed = text.trim().slice(0, urlCharsMax);
  const url = URL.canParse(trimmed) ? new URL(trimmed) : undefined;
  const isOurs = url !== undefined && `${url.origin}${url.pathname}` === expected.redirectUri;
  const judged = isOurs ? judge(url.searchParams, expected) : undefined;
  if (judged) return judged;
  const wrongPastes = state.wrongPastes + 1;
  return wrongPastes >= pastesMax ? refuse('wrong_redirect') : { ...state, wrongPastes };
}
