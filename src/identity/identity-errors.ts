/** The errors of requests to authorization servers: what happened, and the next step. Those of a login: login-errors.ts. */
import { HostError } from '../kernel/errors.js';

/** A login would not help. `word` is of this program or of a standard, never text of the authorization server. */
export const noTokenNow = (retryAfterMs: number, word: string): HostError =>
  new HostError('reconnecting', `its authorization server gives no token now (${word})`, {
    ...{ reason: 'auth_server', execution: 'not_executed', retryAfterMs: Math.ceil(retryAfterMs) },
    hint: 'try again after the given time; no login is needed',
  });

/** The error of one of the servers that share a grant. */
export const ofServer = (server: string, error: HostError): HostError =>
  error.with({ message: `server '${server}': ${error.message}`, server });

export const clientRefused = (server: string, word: string): HostError =>
  new HostError(
    'denied',
    `server '${server}': its authorization server refused the client of the configuration (${word})`,
    {
      ...{ server, reason: 'client_refused', execution: 'not_executed' },
      hint: 'correct auth.clientId, auth.clientSecret or auth.clientKey',
    },
  );

export const insecureAddress = (server: string): HostError =>
  new HostError('denied', `server '${server}': an address of its authorization is not https`, {
    ...{ server, reason: 'address_refused', execution: 'not_executed' },
    hint: 'http is used on loopback only; ask the operator of the server for https',
  });

export const documentTooLarge = (server: string, bytesMax: number): HostError =>
  new HostError(
    'result_too_large',
    `server '${server}': an answer about its authorization has more than ${bytesMax} bytes`,
    { server, limit: bytesMax, reason: 'metadata_too_large', execution: 'uncertain' },
  );

export const lateAnswer = (server: string, isSent: boolean): HostError =>
  new HostError('timeout', `server '${server}': its authorization server did not answer in time`, {
    ...{ server, reason: 'metadata_unreachable', execution: isSent ? 'uncertain' : 'not_executed' },
    hint: 'check that this machine can reach the authorization server, then try again',
  });
