/** The errors of requests to authorization servers: what happened, and the next step. Those of a login: login-errors.ts. */
import { HostError, notExecuted } from '../kernel/errors.js';

/** A login would not help. `word` is of this program or of a standard, never text of the authorization server. */
export const noTokenNow = (retryAfterMs: number, word: string): HostError =>
  notExecuted(
    'reconnecting',
    `its authorization server gives no token now (${word})`,
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
