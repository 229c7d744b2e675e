/**
 * A breaker whose connection is controlled by the test.
 */

import { SilentTime } from '../../src/host/server-circuit.js';
import type { Breaker, CheckResult, GatedCircuit, Ticket } from '../../src/policy/breaker.js';

export class FakeCircuit implements GatedCircuit {
  readonly breaker: Breaker;
  isLost = false;
  lastMessageAtMs: number | undefined = undefined;
  /** Result of checks; undefined: no session is open. */
  finds: Promise<CheckResult> | undefined = undefined;
  checks = 0;
  readonly suspects: Ticket[] = [];
  readonly #silentTime = new SilentTime();

  constructor(breaker: Breaker) {
    this.breaker = breaker;
  }

  check(): Promise<CheckResult> | undefined {
    this.checks++;
    return this.finds;
  }

  silentMs(sentAtMs: number, nowMs: number): number {
    return this.lastMessageAtMs === undefined || sentAtMs > nowMs
      ? 0
      : this.#silentTime.add(sentAtMs, this.lastMessageAtMs, nowMs);
  }

  suspect(ticket: Ticket): void {
    this.suspects.push(ticket);
  }
}
