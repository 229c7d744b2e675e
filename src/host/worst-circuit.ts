/**
 * One state for all breakers of a server: its own, and those of its instances. The server counts as open while any of them is
 * open, so that the trouble of one client is not hidden by the others.
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

type Reported = Pick<CircuitNow, 'circuit' | 'failures'>;

export class WorstCircuit {
  readonly #onChange: CircuitChanged;
  /** What each breaker that is not closed has last reported. */
  readonly #reported = new Map<Breaker, Reported>();

  constructor(onChange: CircuitChanged) {
    this.#onChange = onChange;
  }

  changed(breaker: Breaker, circuit: Circuit, failures: number): void {
    const before = this.#worstReported();
    if (circuit === 'closed') this.#reported.delete(breaker);
    else this.#reported.set(breaker, { circuit, failures });
    const after = this.#worstReported();
    if (after.circuit !== before.circuit) this.#onChange(before.circuit, after.circuit, after.failures);
  }

  /** `own`: the breaker of the shared server, whose failures are shown while all are closed; undefined before its first call. */
  now(own: Breaker | undefined, nowMs: number): CircuitNow {
    let worst = own ? nowOf(own, nowMs) : closedNow;
    for (const breaker of this.#reported.keys()) {
      const each = nowOf(breaker, nowMs);
      if (severity[each.circuit] > severity[worst.circuit]) worst = each;
    }
    return worst;
  }

  #worstReported(): Reported {
    let worst: Reported = closedNow;
    for (const each of this.#reported.values()) if (severity[each.circuit] > severity[worst.circuit]) worst = each;
    return worst;
  }
}
