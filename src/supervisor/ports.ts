/**
 * What the supervisor needs from below, as types: a connection and the way to open one. Host hands them in.
 * Also which kind of failure an error is, by its code and facts; text is never looked at.
 */
import { type HostError, isHostError } from '../kernel/errors.js';
import type { FailureKind } from './server-state.js';

/** The supervisor only drains and closes it; what else it can do is between the host and whoever acquires it. */
export interface Connection {
  /** Why it is over, once it is. */
  readonly closedBy: HostError | undefined;
  /** The server works on a request that is younger than its own timeout: silence meanwhile is no sign of a fault. */
  readonly isAtWork?: boolean;
  /** Resolves when every request under way has its outcome, at the latest after `withinMs`. Undefined: none is under way. */
  drain?(withinMs: number): Promise<void> | undefined;
  /** Must settle, however the server behaves, and only when nothing of it is left: the next run waits for that. */
  close(): Promise<void>;
}

/**
 * Opens run number `run`. Must settle: by a start timeout of its own, and soon after `signal` aborts. `onLost` may be called
 * at any time, also before the promise settles; more than one call is as good as one.
 */
export type Connect<C extends Connection> = (
  run: number,
  signal: AbortSignal,
  onLost: (error: HostError) => void,
) => Promise<C>;

/** Asks a connection for a sign of life. A rejection means there was none. */
export type Verify<C extends Connection> = (connection: C, deadlineAtMs: number) => Promise<boolean>;

/** Reasons of `connect_failed` that another try at once cannot change. */
const permanentReasons: ReadonlySet<string | undefined> = new Set([
  'ENOENT',
  'EACCES',
  'ENOTDIR',
  'sandbox_unavailable',
  'sandbox_path',
  'sandbox_home',
  'unsupported_platform',
]);

/** Reasons of `protocol_error`: what it speaks is not what we speak. */
const foreignReasons: ReadonlySet<string | undefined> = new Set(['no_common_version', 'not_mcp']);

/** What a shell, or a wrapper like it, exits with when it may not run the command, or does not find it. */
const permanentExits: ReadonlySet<number | undefined> = new Set([126, 127]);

export function classifyFailure(error: unknown): FailureKind {
  if (!isHostError(error)) return 'transient';
  const { reason, exitCode } = error.details;
  if (error.code === 'needs_reauth') return 'auth';
  const isPermanent =
    error.code === 'invalid_spec' ||
    (error.code === 'connect_failed' && permanentReasons.has(reason)) ||
    (error.code === 'protocol_error' && foreignReasons.has(reason)) ||
    permanentExits.has(exitCode);
  return isPermanent ? 'permanent' : 'transient';
}
