/**
 * The errors of a server that is not available: one per state, with the reason and the next step. Also the error for an
 * unexpected exception during a start.
 * Invariant: each is raised before the request is sent, so each is `not_executed`; only `unresponsive` is `uncertain`.
 */
import { type ErrorCode, HostError, type HostErrorOptions, thrownText } from '../kernel/errors.js';
import type { Redact } from '../kernel/redact.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Reason } from './restart-plan.js';
import type { ServerState } from './server-state.js';

export interface Refused {
  readonly server: string;
  readonly nowMs: number;
  readonly lastError: HostError | undefined;
  readonly isOneShot?: boolean | undefined;
  /** Error in its configuration entry. */
  readonly problem?: Problem | undefined;
}

interface Problem {
  readonly message: string;
  readonly hint: string | undefined;
}

/** The error for callers in this state. Undefined: the server is ready, or may be soon. */
export function refusalOf(state: ServerState, refused: Refused): HostError | undefined {
  // The state after `closing` is already decided: callers need not wait for the close.
  const at = state.kind === 'closing' ? state.next : state;
  const { server } = refused;
  switch (at.kind) {
    case 'parked':
      return parked(at.reason, at.nextProbeAtMs, refused);
    case 'ejected':
      return refuse('server_ejected', `server '${server}' is ejected (${text(at.reason)}) until a reload`, {
        ...because(at.reason, refused),
        hint: `fix the cause, which hostler logs ${server} shows, then reload server '${server}'`,
      });
    case 'auth_required':
      return refuse('needs_reauth', `server '${server}' needs a new authorization (${text(at.reason)})`, {
        ...because(at.reason, refused),
        hint: loginHint(refused),
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

/** If a login can help, the hint of the refused request names the command for it. */
const loginHint = ({ server, lastError }: Refused): string =>
  (lastError?.code === 'needs_reauth' ? lastError.hint : undefined) ??
  `log in to server '${server}' again; do not repeat the call before that`;

/** The caller's wait has ended, but the server is still being connected. */
export function notYet(state: ServerState, { server, nowMs, lastError }: Refused): HostError {
  const retryAfterMs = state.kind === 'backing_off' ? Math.max(0, Math.ceil(state.retryAtMs - nowMs)) : undefined;
  return refuse('reconnecting', `server '${server}' is not ready (${state.kind}); Hostler keeps reconnecting it`, {
    server,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(lastError === undefined ? {} : { cause: lastError }),
    hint: 'try again in a moment',
  });
}

export const cancelled = (server: string): HostError =>
  refuse('cancelled', `the caller cancelled while waiting for server '${server}'`, { server });

/** Another server is about to take the name. */
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
  new HostError('transport', `server '${server}' runs but does not answer`, {
    server,
    reason: 'unresponsive',
    execution: 'uncertain',
    hint: isOneShot
      ? 'it is closed; attach a new connection under its name, or attach a factory, which Hostler can restart'
      : 'Hostler restarts it; if this repeats, look at its stderr',
  });

const refuse = (code: ErrorCode, message: string, options: HostErrorOptions): HostError =>
  new HostError(code, message, { phase: 'queued', execution: 'not_executed', ...options });

function parked(reason: Reason, nextProbeAtMs: number, refused: Refused): HostError {
  const { server, nowMs } = refused;
  const retryAfterMs = Math.max(0, Math.ceil(nextProbeAtMs - nowMs));
  const inSeconds = Math.ceil(retryAfterMs / 1_000);
  const message = `server '${server}' is parked (${text(reason)}); the next try is in ${inSeconds} s, or at once by a reload`;
  return refuse('server_parked', message, {
    ...because(reason, refused),
    retryAfterMs,
    hint: `fix the cause, which hostler logs ${server} shows; reload server '${server}' to try it at once`,
  });
}

/** A one-shot server also stops when it fails; the failure is then the cause. */
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
    ? refuse(
        'server_disabled',
        `server '${server}' is disabled because its configuration entry is invalid: ${problem.message}`,
        {
          server,
          reason: 'invalid_spec',
          hint: problem.hint ?? 'correct its entry in the configuration',
        },
      )
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

const causeChars = 500;

/**
 * Wraps an exception of a start that is not a HostError. Its text is redacted by `clean` and neutralised before it becomes part
 * of the message; without `clean` only the name of the error is shown.
 */
export function unexpectedError(server: string, cause: unknown, clean?: Redact): HostError {
  const text = neutraliseLine(clean ? clean(textOf(cause)) : kindOf(cause), causeChars);
  return new HostError('connect_failed', `server '${server}' could not be opened: unexpected error: ${text}`, {
    server,
    reason: 'unexpected',
    execution: 'not_executed',
    hint: 'this is a bug in Hostler or in code that the application passed to it: report it with this message',
    cause,
  });
}

function kindOf(thrown: unknown): string {
  try {
    return thrown instanceof Error ? String(thrown.name) : typeof thrown;
  } catch {
    return typeof thrown;
  }
}

const textOf = (thrown: unknown): string =>
  thrown instanceof Error ? `${kindOf(thrown)}: ${thrownText(thrown)}` : thrownText(thrown);
