/**
 * What the gates need of the server that a request goes to: its breaker, and what is known of its connection.
 * Not here: how that is found out (host/server-circuit.ts).
 */
import type { Breaker, Strike, Ticket } from './breaker.js';

/** `unasked`: the check could not be sent, which says nothing about the server. */
export type CheckResult = 'alive' | 'unasked' | Strike;

/** The breaker of a server, or of a client's own instance of it, and what the gate needs to know of its connection. */
export interface GatedCircuit {
  readonly breaker: Breaker;
  /** No connection is open. */
  readonly isLost: boolean;
  /**
   * A call that was sent at `sentAtMs` was given up by its caller: how long such calls have waited since anything was heard from
   * the server. 0 without a connection.
   */
  unheardMs(sentAtMs: number, nowMs: number): number;
  /** Asks the open session for a sign of life; undefined where there is none. Settles within 5 s. */
  check(): Promise<CheckResult> | undefined;
  /** The call with this ticket ended after a silence that may be the server's fault: a check decides, and takes the ticket. */
  suspect(ticket: Ticket): void;
}
