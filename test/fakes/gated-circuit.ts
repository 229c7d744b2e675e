/**
 * The breaker of a server whose connection is what a test says.
 */

import { UnheardTime } from '../../src/host/server-circuit.js';
import type { Breaker, CheckResult, GatedCircuit, Ticket } from '../../src/policy/breaker.js';

export class FakeCircuit implements GatedCircuit {
  readonly breaker: Breaker;
  isLost = false;
  heardAtMs: number | undefined = undefined;
  /** What checks find; undefined where no session is open. */
  finds: Promise<CheckResult> | undefined = undefined;
  checks = 0;
  readonly suspects: Ticket[] = [];
  readonly #unheard = new UnheardTime();

  constructor(breaker: Breaker) {
    this.breaker = breaker;
  }

  check(): Promise<CheckResult> | undefined {
    this.checks++;
    return this.finds;
  }

  unheardMs(sentAtMs: number, nowMs: number): number {
    return this.heardAtMs === undefined || sentAtMs > nowMs ? 0 : this.#unheard.add(sentAtMs, this.heardAtMs, nowMs);
  }

  suspect(ticket: Ticket): void {
    this.suspects.push(ticket);
  }
}
