/** The errors of a login: what happened, and the next step. */
import type { HostError } from '../kernel/errors.js';
import { refusal } from './identity-errors.js';

const texts: Readonly<Record<string, readonly [text: string, hint: string]>> = {
  login_expired: [
    'the login was not finished in time',
    'run the command again; if the page says that the client is unknown, add --fresh',
  ],
  login_denied: [
    'the login was refused on its page',
    'run the command again and allow it; if the page asked nothing, name the scopes that the server needs with --scopes',
  ],
  login_failed: [
    'the authorization server refused the login',
    'run the command again; if it fails again, add --fresh, or name the scopes with --scopes',
  ],
  login_interrupted: [
    'the connection broke after the code was sent, and a code is never sent twice',
    'run the command again',
  ],
  issuer_mismatch: [
    'the answer came from another authorization server; its code was not used',
    'do not repeat it before the operator of the server has been told',
  ],
  wrong_redirect: [
    'three pasted addresses did not belong to this login',
    'run the command again and paste the whole address that the browser ends at',
  ],
  token_invalid: [
    'the authorization server sent no usable token; nothing was stored',
    'tell the operator of the server',
  ],
  client_gone: [
    'the authorization server does not know this client any more',
    'run the command again: it registers a new client',
  ],
  scope_ceiling: ['it wants scopes that auth.scopesMax does not allow', 'add them to auth.scopesMax if that is right'],
  account_changed: [
    'this login is for another account; nothing was stored',
    'repeat it with --yes, or give each account its own auth.account',
  ],
  cancelled: ['the login was cancelled', 'run the command again'],
};

export function loginRefused(server: string, reason: string, more = ''): HostError {
  const [text, hint] = texts[reason] ?? ['the login failed', 'run the command again'];
  const error = refusal(server, reason, `${text}${more}`, hint);
  return reason === 'cancelled' ? error.with({ code: 'cancelled' }) : error;
}
