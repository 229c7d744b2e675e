/**
 * Converts HTTP statuses above 299, and network errors of undici or the system, to HostError.
 * Some statuses mean that the request was not executed. All others are `uncertain`: a proxy sends 408, 429 and 503 also for
 * forwarded requests. If the connection breaks, execution is `uncertain` as soon as one byte of the request may have been sent.
 */
import { HostError, type HostErrorOptions, isHostError } from '../../kernel/errors.js';
import { type AuthToken, type RefusalKind, TokenRefused } from './auth-token.js';
import { type Challenge, parseChallenges } from './challenges.js';
import { headerText, type ResponseHeaders } from './headers.js';

const retryAfterMsMax = 5 * 60_000;
const challengeCharsMax = 4_096;

interface StatusFacts {
  readonly server: string;
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** True: the request had a session id. */
  readonly inSession: boolean;
  /** Code of a JSON-RPC error without an id in the body. */
  readonly rpcCode: number | undefined;
  readonly now: Date;
  readonly sent: AuthToken | undefined;
}

export function statusError(facts: StatusFacts): HostError {
  const { server, status, headers, rpcCode } = facts;
  const details: HostErrorOptions = {
    server,
    httpStatus: status,
    ...(rpcCode === undefined ? {} : { rpcCode }),
  };
  const kind = tokenRefusal(status, headers);
  if (kind) return tokenRefused(kind, details, facts);
  if (status === 404 && facts.inSession) {
    return new HostError('transport', `server '${server}' no longer knows the session (404)`, {
      ...details,
      reason: 'session_expired',
      execution: 'not_executed',
    });
  }
  const retryAfterMs = parseRetryAfter(headerText(headers, 'retry-after'), facts.now);
  // A 503 without Retry-After is a failure of the server, like a 502.
  if (status === 429 || (status === 503 && retryAfterMs !== undefined)) {
    return new HostError('overloaded', `server '${server}' is overloaded (${status})`, {
      ...details,
      reason: 'http_status',
      execution: 'uncertain',
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    });
  }
  if (status >= 500) {
    return new HostError('transport', `server '${server}' answered with status ${status}`, {
      ...details,
      reason: 'http_status',
      execution: 'uncertain',
    });
  }
  return new HostError('protocol_error', `server '${server}' refused the request with status ${status}`, {
    ...details,
    reason: 'http_status',
    execution: refusedUnread.includes(status) ? 'not_executed' : 'uncertain',
  });
}

/** Returns why a response refuses the token, or undefined if the token is not the cause. */
export function tokenRefusal(status: number, headers: ResponseHeaders): RefusalKind | undefined {
  if (status === 401) return 'token';
  const isScope = ({ params }: Challenge) => params.get('error') === 'insufficient_scope';
  return status === 403 && parseChallenges(challengeOf(headers)).some(isScope) ? 'scope' : undefined;
}

function tokenRefused(kind: RefusalKind, details: HostErrorOptions, { server, headers, sent }: StatusFacts): HostError {
  const refusal = { kind, sent, challenge: challengeOf(headers) };
  if (kind === 'scope') {
    const hint = `sign in to server '${server}' with the rights that it requires; do not repeat the call before that`;
    const message = `server '${server}' requires more rights than the token grants (403)`;
    return new TokenRefused(message, { ...details, reason: 'insufficient_scope', hint }, refusal);
  }
  const hint = `sign in to server '${server}' again, or renew the token in its configuration; do not repeat the call before that`;
  return new TokenRefused(`server '${server}' requires authorization (401)`, { ...details, hint }, refusal);
}

/** Statuses that mean that the request was not executed. */
const refusedUnread = [400, 401, 403, 404, 405, 406, 410, 413, 415];

/** Statuses about authorization or load, not about the protocol of the request. */
const otherRefusals = [401, 403, 407, 408, 425, 429];

/** True: the status may mean that the server speaks another protocol. */
export const refusesProtocol = (status: number | undefined): boolean =>
  status !== undefined && status >= 400 && status < 500 && !otherRefusals.includes(status);

export function parseRetryAfter(value: string | undefined, now: Date): number | undefined {
  if (value === undefined) return undefined;
  const text = value.trim();
  if (/^\d{1,10}$/.test(text)) return Math.min(Number(text) * 1000, retryAfterMsMax);
  const atMs = /^[A-Za-z]{3}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : Math.min(Math.max(atMs - now.getTime(), 0), retryAfterMsMax);
}

/** A server may send one header for each challenge. */
function challengeOf(headers: ResponseHeaders): string | undefined {
  const value = headers['www-authenticate'];
  return (Array.isArray(value) ? value.join(', ') : value)?.slice(0, challengeCharsMax);
}

/** `reason` is the error code of the system. Its text is only in `cause`. */
export function networkError(error: Error, server: string, written: boolean): HostError {
  if (isHostError(error)) return error;
  const code = (error as NodeJS.ErrnoException).code;
  const reason = typeof code === 'string' ? code : 'socket';
  const hint = HINTS[reason];
  if (!written) {
    return new HostError('connect_failed', `server '${server}': no connection could be opened (${reason})`, {
      server,
      reason,
      phase: 'queued',
      execution: 'not_executed',
      cause: error,
      ...(hint === undefined ? {} : { hint }),
    });
  }
  return new HostError(
    'transport',
    `server '${server}': the connection broke before the answer was complete (${reason})`,
    {
      server,
      reason,
      phase: 'writing',
      execution: 'uncertain',
      cause: error,
    },
  );
}

const HINTS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens at this address: check that the server is running and that the port is right',
  ENOTFOUND: 'the host name does not resolve: check the URL and the DNS of this machine',
  EAI_AGAIN: 'the name server did not answer: check the DNS of this machine',
  UND_ERR_CONNECT_TIMEOUT: 'the address does not answer: check the URL and any firewall between',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'the certificate is self-signed: trust it explicitly or use another',
  SELF_SIGNED_CERT_IN_CHAIN:
    'the certificate chain is not trusted by this machine: install the authority that signed it',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    'the certificate chain is not trusted by this machine: install the authority that signed it',
  CERT_HAS_EXPIRED: 'the certificate of the server has expired: renew it',
  ERR_TLS_CERT_ALTNAME_INVALID: 'the certificate of the server is for another name: check the host in the URL',
};

/** JSON-RPC error with the id of the request, sent as the body of the refusal. */
export interface RefusalAnswer {
  readonly bytes: Buffer;
  readonly mayHold: number;
}

/**
 * A refusal with an unclear cause. Either the request is wrong, or the server no longer knows the session (many servers report that
 * with 400 instead of 404) or the protocol. session/eras/ finds out which.
 */
export class BadRequest extends HostError {
  /** Answer for the caller if the request turns out to be wrong. */
  readonly answer: RefusalAnswer | undefined;

  constructor(error: HostError, answer: RefusalAnswer | undefined) {
    super(error.code, error.message, { ...error.details, ...(error.hint === undefined ? {} : { hint: error.hint }) });
    this.answer = answer;
  }
}
