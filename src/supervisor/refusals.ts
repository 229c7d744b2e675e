/**
 * What a caller is told when a server is not to be had: one error per state, each saying why and what helps.
 * Every one of them is said before anything was sent, so each is `not_executed`.
 */
import { type ErrorCode, HostError, type HostErrorOptions } from '../kernel/errors.js';
import type { Reason } from './restart-plan.js';
import type { ServerState } from './server-state.js';

/** Who is asked for, and the failure that led here. */
export interface Refused {
  readonly server: string;
  readonly nowMs: number;
  readonly lastError: HostError | undefined;
  /** It cannot be started a second time. */
  readonly isOneShot?: boolean | undefined;
  /** Why its entry in the configuration cannot be used. */
  readonly problem?: Problem | undefined;
}

interface Problem {
  readonly message: string;
  readonly hint: string | undefined;
}

/** Why nobody can have the server in this state; undefined when it is ready or may be soon. */
export function refusalOf(state: ServerState, refused: Refused): HostError | undefined {
  // Where a run that is being closed leads is settled: no need to wait for the close to say so.
  const at = state.kind === 'closing' ? state.next : state;
  const { server } = refused;
  switch (at.kind) {
    case 'parked':
      return parked(at.reason, at.nextProbeAtMs, refused);
    case 'ejected':
      return refuse('server_ejected', `server '${server}' was taken out of use (${text(at.reason)}), until a reload`, {
        ...because(at.reason, refused),
        hint: `mend what made it fail, then reload server '${server}'`,
      });
    case 'auth_required':
      return refuse('needs_reauth', `server '${server}' needs a new authorization (${text(at.reason)})`, {
        ...because(at.reason, refused),
        hint: `log in to server '${server}' again; do not repeat the call before that`,
      });
    case 'stopped':
      return stopped(refused);
    case 'disabled':
      return disabled(server, refused.problem);
    case 'stopping':
      return at.next === 'stopped'
        ? stopped(refused)
        : at.next === 'disabled'
          ? disabled(server, refused.problem)
          : undefined;
    default:
      return undefined;
  }
}

/** The wait is over and the server is not ready; it will be tried on. */
export function notYet(state: ServerState, { server, nowMs, lastError }: Refused): HostError {
  const retryAfterMs = state.kind === 'backing_off' ? Math.max(0, Math.ceil(state.retryAtMs - nowMs)) : undefined;
  return refuse('reconnecting', `server '${server}' is not ready (${state.kind}); Hostler goes on to reconnect it`, {
    server,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(lastError === undefined ? {} : { cause: lastError }),
    hint: 'try again in a moment',
  });
}

export const cancelled = (server: string): HostError =>
  refuse('cancelled', `the caller gave up while it waited for server '${server}'`, { server });

/** It is gone, and another one is about to have its name. */
export const replaced = (server: string): HostError =>
  refuse('reconnecting', `server '${server}' is being replaced`, { server, hint: 'try again in a moment' });

export const tooManyWait = (server: string, limit: number): HostError =>
  refuse('overloaded', `${limit} callers already wait for server '${server}'`, {
    server,
    limit,
    reason: 'waiters',
    hint: 'send fewer calls at once, or try again when it is ready',
  });

export const unresponsive = ({ server, isOneShot }: Refused): HostError =>
  new HostError('transport', `server '${server}' runs but gave no sign of life`, {
    server,
    reason: 'unresponsive',
    execution: 'uncertain',
    hint: isOneShot
      ? 'it is closed; attach a new connection under its name, or attach a factory, which is restarted'
      : 'it is restarted; if this repeats, look at its stderr',
  });

const refuse = (code: ErrorCode, message: string, options: HostErrorOptions): HostError =>
  new HostError(code, message, { phase: 'queued', execution: 'not_executed', ...options });

function parked(reason: Reason, nextProbeAtMs: number, refused: Refused): HostError {
  const { server, nowMs } = refused;
  const retryAfterMs = Math.max(0, Math.ceil(nextProbeAtMs - nowMs));
  const inSeconds = Math.ceil(retryAfterMs / 1_000);
  const message = `server '${server}' is parked (${text(reason)}); it is tried again in ${inSeconds} s, or at once by a reload`;
  return refuse('server_parked', message, {
    ...because(reason, refused),
    retryAfterMs,
    hint: `mend what made it fail; reload server '${server}' to try it at once`,
  });
}

/** A one-shot server may be stopped because it failed: then the failure is the cause. */
const stopped = ({ server, isOneShot, lastError }: Refused): HostError =>
  isOneShot
    ? refuse('server_stopped', `server '${server}' is stopped${lastError ? ` (${text(lastError)})` : ''}`, {
        server,
        ...(lastError === undefined ? {} : { cause: lastError }),
        hint: `it was attached without a factory and cannot be started again; detach '${server}' and attach a new connection`,
      })
    : refuse('server_stopped', `server '${server}' is stopped`, { server, hint: `start or reload server '${server}'` });

const disabled = (server: string, problem: Problem | undefined): HostError =>
  problem
    ? refuse('server_disabled', `server '${server}' is disabled, its entry cannot be used: ${problem.message}`, {
        server,
        reason: 'invalid_spec',
        hint: problem.hint ?? 'correct its entry in the configuration',
      })
    : refuse('server_disabled', `server '${server}' is disabled in the configuration`, {
        server,
        hint: `set "enabled" of server '${server}' to true`,
      });

const because = (reason: Reason, { server, lastError }: Refused): HostErrorOptions => ({
  server,
  reason: lastError?.details.reason ?? reason.code,
  ...(lastError === undefined ? {} : { cause: lastError }),
});

const text = ({ message }: Reason): string => message.replace(/\.$/, '');
