/**
 * How long calls have waited for a server without hearing anything from it, added up over calls whose callers gave them up. Callers
 * that each wait for less than the silence that is worth a check would otherwise never find out that a server hangs.
 * Invariants: time that several calls waited together counts once; anything heard from the server sets it to zero.
 */
export class UnheardTime {
  #sumMs = 0;
  /** The end of what was counted. */
  #untilMs = Number.NEGATIVE_INFINITY;

  /** A call that was sent at `sentAtMs` was given up now; returns what calls have waited since the server was last heard. */
  add(sentAtMs: number, heardAtMs: number, nowMs: number): number {
    if (heardAtMs >= this.#untilMs) this.#sumMs = 0;
    const fromMs = Math.max(sentAtMs, heardAtMs, this.#untilMs);
    this.#sumMs += Math.max(0, nowMs - fromMs);
    this.#untilMs = nowMs;
    return this.#sumMs;
  }
}
