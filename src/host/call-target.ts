/**
 * Where the requests to a server go: to the one that everybody shares, or to an instance of the caller's own (instances.ts).
 * Guards, pins, budgets and places are those of the server; the connection and the breaker are the target's own.
 */
import type { AuthLimits, AuthRecovery } from '../session/auth/auth-recovery.js';
import type { Session } from '../session/session.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import type { ManagedServer } from './managed-server.js';
import type { ServerCircuit } from './server-circuit.js';

export interface CallTarget {
  readonly supervisor: Supervisor<Session>;
  /** Of a server over HTTP. */
  readonly auth: AuthRecovery | undefined;
  /** A request holds it open from here … */
  enter(): void;
  /** … to here. */
  leave(): void;
  /** Does it, and once more if it was refused for a token that could be renewed. */
  renewing<T>(limits: AuthLimits, attempt: () => Promise<T>): Promise<T>;
  /** Its own breaker. */
  readonly circuit: ServerCircuit;
  /** It answers: what calls found out about the server counts no more. */
  forgetCircuit(): void;
}

/**
 * `instance` names the client, where each has its own; throws without one there, and when there can be no such instance.
 * `owner`: the id of the principal that asks.
 */
export type TargetOf = (server: ManagedServer, instance: string | undefined, owner: string) => CallTarget;

/** Holds it open for as long as that takes. */
export async function whileHeld<T>(target: CallTarget, run: () => Promise<T>): Promise<T> {
  target.enter();
  try {
    return await run();
  } finally {
    target.leave();
  }
}
