/**
 * What a supervisor is made of: one server's own facts and limits, and what all servers of a host share.
 */
import type { Clock } from '../kernel/clock.js';
import type { Emitter } from '../kernel/emitter.js';
import type { Random } from '../kernel/random.js';
import type { CorrelatedFailures } from './correlated-failures.js';
import type { Connect, Connection, Verify } from './ports.js';
import type { Refused } from './refusals.js';
import type { Ledger, RestartPlan } from './restart-plan.js';
import type { Gate } from './start-gate.js';
import type { SupervisorEvents } from './supervisor-events.js';

export interface SupervisorOptions<C extends Connection> {
  readonly name: string;
  readonly connect: Connect<C>;
  readonly verify: Verify<C>;
  readonly clock: Clock;
  readonly random: Random;
  /** Shared by all servers of the host, as are the guard and the events. */
  readonly gate: Gate;
  readonly guard: CorrelatedFailures;
  readonly events: Emitter<SupervisorEvents>;
  readonly plan?: RestartPlan;
  readonly isLazy: boolean;
  readonly isEnabled?: boolean;
  /** The connection cannot be made a second time: there is one run, and no restart. */
  readonly isOneShot?: boolean | undefined;
  /** Why it is disabled, when its entry in the configuration cannot be used. */
  readonly problem?: Refused['problem'];
  /** The first start of a package runner may only be filling its cache. */
  readonly isFirstStartFree?: boolean;
  /** How long a caller waits for a server that is not ready. */
  readonly waitMs?: number;
  /** For the health check of a suspect. */
  readonly verifyMs?: number;
  readonly waitersMax?: number;
  /** What an earlier host left about this very definition, and who is told of every change. */
  readonly history?: History;
}

export interface History {
  readonly ledger: Ledger;
  /** Must not throw. Never called on the path of a call. */
  readonly remember: (ledger: Ledger) => void;
}
