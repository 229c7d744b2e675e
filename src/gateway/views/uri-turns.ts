/**
 * Spreads the matching of long URIs over turns of the event loop: one message may hold a hundred of them, and each may be
 * matched against a thousand templates.
 * Invariant: in one turn, at most `charsPerTurn` characters are matched, or one longer text.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

export const charsPerTurn = 8_192;

export class UriTurns {
  #left = charsPerTurn;

  /** Undefined: now. Otherwise ask again when it resolves. */
  wait(chars: number): Promise<void> | undefined {
    const isFirst = this.#left === charsPerTurn;
    if (chars > this.#left && !isFirst) return nextTurn();
    if (isFirst) setImmediate(() => this.#refill());
    this.#left = Math.max(0, this.#left - chars);
    return undefined;
  }

  #refill(): void {
    this.#left = charsPerTurn;
  }
}
