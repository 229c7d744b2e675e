/** The errors of logins and of requests to authorization servers: what happened, and the next step. */
import { HostError, notExecuted } from '../kernel/errors.js';

/** For a failure that a login would not end. `word` comes from this program or a standard, never from the authorization server. */
export const noTokenNow = (retryAfterMs: number, word: string): HostError =>
  notExecuted(
    'reconnecting',
    `its authorization server issues no token at the moment (${word})`,
    'try again after the given time; no login is needed',
    { reason: 'auth_server', retryAfterMs: Math.ceil(retryAfterMs) },
  );

/** The error of one of the servers that share a grant. */
export const ofServer = (server: string, error: HostError): HostError =>
  error.with({ message: `server '${server}': ${error.message}`, server });

/** A fault that lasts until a person corrects it. */
export const refusal = (server: string, reason: string, text: string, hint: string): HostError =>
  notExecuted('denied', `server '${server}': ${text}`, hint, { server, reason });

export const clientRefused = (server: string, word: string): HostError =>
  refusal(
    server,
    'client_refused',
    `its authorization server refused the client of the configuration (${word})`,
    'correct auth.clientId, auth.clientSecret or auth.clientKey',
  );

export const documentTooLarge = (server: string, limit: number): HostError =>
  new HostError(
    'result_too_large',
    `server '${server}': an answer about its authorization has more than ${limit} bytes`,
    {
      ...{ server, limit, reason: 'metadata_too_large', execution: 'uncertain' },
    },
  );

export const lateAnswer = (server: string, isSent: boolean): HostError =>
  new HostError('timeout', `server '${server}': its authorization server did not answer in time`, {
    ...{ server, reason: 'metadata_unreachable', execution: isSent ? 'uncertain' : 'not_executed' },
    hint: 'check that this machine can reach the authorization server, then try again',
  });

/** Nothing was changed, and servers without a login are served all the same. */
export const storeLocked = (what: string, hint: string, cause?: unknown): HostError =>
  new HostError('invalid_spec', `identity.db ${what}`, { field: 'identity', reason: 'store_locked', hint, cause });

const loginTexts: Readonly<Record<string, readonly [text: string, hint: string]>> = {
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
  const [text, hint] = loginTexts[reason] ?? ['the login failed', 'run the command again'];
  const error = refusal(server, reason, `${text}${more}`, hint);
  return reason === 'cancelled' ? error.with({ code: 'cancelled' }) : error;
}
