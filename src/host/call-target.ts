/**
 * The target of an operation: the shared server, or the instance of a client (instances.ts).
 * Guards, pins, budgets and slots belong to the server; each target has its own connection and breaker.
 */
import type { AuthRecovery } from '../session/auth/auth-recovery.js';
import type { Session } from '../session/session.js';
import type { CallHold } from '../supervisor/registry.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import type { ServerCircuit } from './server-circuit.js';

export abstract class CallTarget {
  readonly supervisor: Supervisor<Session>;
  /** Undefined unless the transport is HTTP. */
  readonly auth: AuthRecovery | undefined;
  readonly #hold: CallHold;
  /** Created by the first call: most servers of a large host are idle. */
  #circuit: ServerCircuit | undefined;

  constructor(supervisor: Supervisor<Session>, auth: AuthRecovery | undefined, hold: CallHold) {
    this.supervisor = supervisor;
    this.auth = auth;
    this.#hold = hold;
  }

  protected abstract createCircuit(): ServerCircuit;

  get circuit(): ServerCircuit {
    this.#circuit ??= this.createCircuit();
    return this.#circuit;
  }

  /** Undefined before the first call. */
  protected get ownCircuit(): ServerCircuit | undefined {
    return this.#circuit;
  }

  /** Called when a run began or ended, or when the server has answered: earlier failures no longer count. */
  forgetCircuit(): void {
    this.#circuit?.breaker.reset();
  }

  enter(): void {
    this.#hold.enter();
  }

  leave(): void {
    this.#hold.leave();
  }
}
