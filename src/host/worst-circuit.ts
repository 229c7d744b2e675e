/**
 * One word for the breakers of one server: its own, and those of the instances that clients have of it. The server counts as
 * open while any of them is, so that no trouble of one client is hidden behind the others.
 * Invariant: only breakers that are not closed are kept.
 */
import type { Breaker, Circuit, CircuitChanged } from '../policy/breaker.js';

export interface CircuitNow {
  readonly circuit: Circuit;
  /** In a row. */
  readonly failures: number;
  /** When the next call may pass; undefined while it is closed. */
  readonly opensAgainAtMs: number | undefined;
}

const severity: Readonly<Record<Circuit, number>> = { closed: 0, half_open: 1, open: 2 };

export const closedNow: CircuitNow = { circuit: 'closed', failures: 0, opensAgainAtMs: undefined };

const nowOf = (breaker: Breaker, nowMs: number): CircuitNow => ({
  circuit: breaker.circuit(nowMs),
  failures: breaker.failures,
  opensAgainAtMs: breaker.opensAgainAtMs(nowMs),
});

interface Told {
  readonly circuit: Circuit;
  readonly failures: number;
}

const wellTold: Told = { circuit: 'closed', failures: 0 };

export class WorstCircuit {
  readonly #onChange: CircuitChanged;
  /** What each breaker that is not closed has last told. */
  readonly #told = new Map<Breaker, Told>();

  constructor(onChange: CircuitChanged) {
    this.#onChange = onChange;
  }

  changed(breaker: Breaker, circuit: Circuit, failures: number): void {
    const before = this.#worstTold();
    if (circuit === 'closed') this.#told.delete(breaker);
    else this.#told.set(breaker, { circuit, failures });
    const after = this.#worstTold();
    if (after.circuit !== before.circuit) this.#onChange(before.circuit, after.circuit, after.failures);
  }

  /** `own`: the one that counts while all are closed; undefined before it was first asked. */
  now(own: Breaker | undefined, nowMs: number): CircuitNow {
    let worst = own ? nowOf(own, nowMs) : closedNow;
    for (const breaker of this.#told.keys()) {
      const each = nowOf(breaker, nowMs);
      if (severity[each.circuit] > severity[worst.circuit]) worst = each;
    }
    return worst;
  }

  #worstTold(): Told {
    let worst = wellTold;
    for (const told of this.#told.values()) if (severity[told.circuit] > severity[worst.circuit]) worst = told;
    return worst;
  }
}
