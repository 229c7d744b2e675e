/**
 * Where an operation is sent: to the shared server, or to the client's own instance of it (instances.ts).
 * Guards, pins, budgets and slots are those of the server; the connection and the breaker are the target's own.
 */
import type { AuthRecovery } from '../session/auth/auth-recovery.js';
import type { Session } from '../session/session.js';
import type { CallHold } from '../supervisor/registry.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import type { ServerCircuit } from './server-circuit.js';

export abstract class CallTarget {
  readonly supervisor: Supervisor<Session>;
  /** Undefined unless the server is reached over HTTP. */
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

  /** A run has begun or ended, or the server has answered: failures of calls before do not count. */
  forgetCircuit(): void {
    this.#circuit?.breaker.reset();
  }

  /** Keeps the target open until `leave`. */
  enter(): void {
    this.#hold.enter();
  }

  leave(): void {
    this.#hold.leave();
  }
}
