/**
 * Interfaces between a supervisor and the host: the function that opens connections, and the settings of one server.
 * Also classifies failures, by error code and details, never by text.
 */
import type { Clock } from '../kernel/clock.js';
import type { Emitter } from '../kernel/emitter.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import type { CorrelatedFailures } from './correlated-failures.js';
import type { Refused } from './refusals.js';
import type { Ledger, RestartPlan } from './restart-plan.js';
import type { FailureKind } from './server-state.js';
import type { Gate } from './start-gate.js';
import type { SupervisorEvents } from './supervisor-events.js';

/** The supervisor only drains and closes a connection. */
export interface Connection {
  readonly closedBy: HostError | undefined;
  /** The server works on a request that has not timed out, so silence is not a fault. */
  readonly isAtWork?: boolean;
  /** Resolves when every open request has its outcome, or after `withinMs`. Undefined: no request is open. */
  drain?(withinMs: number): Promise<void> | undefined;
  /** Must always settle, and only when no process or connection of the server is left: the next run waits for it. */
  close(): Promise<void>;
}

/**
 * Opens run number `run`. Must settle: by its own start timeout, and soon after `signal` aborts. `onLost` may be called at
 * any time, also before the promise settles. Repeated calls have no effect.
 */
export type Connect<C extends Connection> = (
  run: number,
  signal: AbortSignal,
  onLost: (error: HostError) => void,
) => Promise<C>;

/** Checks that a connection is alive. A rejection means that it is not alive. */
export type Verify<C extends Connection> = (connection: C, deadlineAtMs: number) => Promise<boolean>;

export interface SupervisorOptions<C extends Connection> {
  readonly name: string;
  readonly connect: Connect<C>;
  readonly verify: Verify<C>;
  readonly clock: Clock;
  readonly random: Random;
  /** `gate`, `guard` and `events` are shared by all servers of the host. */
  readonly gate: Gate;
  readonly guard: CorrelatedFailures;
  readonly events: Emitter<SupervisorEvents>;
  readonly plan?: RestartPlan;
  readonly isLazy: boolean;
  readonly isEnabled?: boolean;
  /** The connection can be made only once: there is one run and no restart. */
  readonly isOneShot?: boolean | undefined;
  /** Error in the configuration entry; it disables the server. */
  readonly problem?: Refused['problem'];
  /** The first start of a package runner may only fill its cache: a failure is not charged. */
  readonly isFirstStartFree?: boolean;
  /** Time that a caller waits for a server that is not ready. */
  readonly waitMs?: number;
  readonly verifyMs?: number;
  readonly waitersMax?: number;
  readonly history?: History;
}

/** Ledger that an earlier host stored for the same definition, and the function that stores changes. */
export interface History {
  readonly ledger: Ledger;
  /** Must not throw. Never called on the path of a call. */
  readonly remember: (ledger: Ledger) => void;
}

/** Reasons of `connect_failed` that an immediate retry cannot change. */
const permanentReasons: ReadonlySet<string | undefined> = new Set([
  'ENOENT',
  'EACCES',
  'ENOTDIR',
  'sandbox_unavailable',
  'sandbox_path',
  'sandbox_home',
  'unsupported_platform',
]);

/** Reasons of `protocol_error`: the server speaks another protocol or version. */
const foreignReasons: ReadonlySet<string | undefined> = new Set(['no_common_version', 'not_mcp']);

/** Exit codes of a shell that may not run the command, or cannot find it. */
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
