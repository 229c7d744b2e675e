/**
 * An HTTP status that is no success → HostError. What the status says about execution: a few refuse the request as such,
 * before anything was done. All others say nothing: a proxy sends 408, 429 and 503 also for requests it did pass on.
 */
import { HostError, type HostErrorOptions } from '../../kernel/errors.js';
import { type AuthToken, type RefusalKind, TokenRefused } from './auth-token.js';
import type { ResponseHeaders } from './http-exchange.js';

/** A server that asks for longer is treated as if it had asked for this. */
const retryAfterMsMax = 5 * 60_000;
const challengeCharsMax = 4_096;

interface StatusFacts {
  readonly server: string;
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** The request named a session. */
  readonly inSession: boolean;
  /** The code of a JSON-RPC error in the body that named no request. */
  readonly rpcCode: number | undefined;
  readonly now: Date;
  /** What the request was authorized with. */
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

/** Which fault a response finds with the token, if that is what it is about. */
export function tokenRefusal(status: number, headers: ResponseHeaders): RefusalKind | undefined {
  if (status === 401) return 'token';
  return status === 403 && /\binsufficient_scope\b/.test(challengeOf(headers) ?? '') ? 'scope' : undefined;
}

function tokenRefused(kind: RefusalKind, details: HostErrorOptions, { server, headers, sent }: StatusFacts): HostError {
  const refusal = { kind, sent, challenge: challengeOf(headers) };
  if (kind === 'scope') {
    const hint = `sign in to server '${server}' with the rights it asks for; do not repeat the call before that`;
    const message = `server '${server}' wants more rights than the token grants (403)`;
    return new TokenRefused(message, { ...details, reason: 'insufficient_scope', hint }, refusal);
  }
  const hint = `sign in to server '${server}' again, or renew the token in its configuration; do not repeat the call before that`;
  return new TokenRefused(`server '${server}' wants authorization (401)`, { ...details, hint }, refusal);
}

/** Statuses that can only be said of a request nobody acted on. */
const refusedUnread = [400, 401, 403, 404, 405, 406, 413, 415];

/** Seconds or a date; undefined when it is neither. */
export function parseRetryAfter(value: string | undefined, now: Date): number | undefined {
  if (value === undefined) return undefined;
  const text = value.trim();
  if (/^\d{1,10}$/.test(text)) return Math.min(Number(text) * 1000, retryAfterMsMax);
  const atMs = /^[A-Za-z]{3}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : Math.min(Math.max(atMs - now.getTime(), 0), retryAfterMsMax);
}

const challengeOf = (headers: ResponseHeaders): string | undefined =>
  headerText(headers, 'www-authenticate')?.slice(0, challengeCharsMax);

export function headerText(headers: ResponseHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}
