/**
 * Where an operation is sent: to the shared server, or to the client's own instance of it (instances.ts).
 * Guards, pins, budgets and slots are those of the server; the connection and the breaker are the target's own.
 */
import type { AuthRecovery } from '../session/auth/auth-recovery.js';
import type { Session } from '../session/session.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import type { ManagedServer } from './managed-server.js';
import type { ServerCircuit } from './server-circuit.js';

export interface CallTarget {
  readonly supervisor: Supervisor<Session>;
  /** Undefined unless the server is reached over HTTP. */
  readonly auth: AuthRecovery | undefined;
  /** Keeps the target open until `leave`. */
  enter(): void;
  leave(): void;
  readonly circuit: ServerCircuit;
  /** The server has answered: resets the breaker. */
  forgetCircuit(): void;
}

/**
 * `instance` names the client of a server with `isolation: "per-client"`; throws without one there, and when the instance
 * cannot be made. `owner`: the id of the principal.
 */
export type TargetOf = (server: ManagedServer, instance: string | undefined, owner: string) => CallTarget;
