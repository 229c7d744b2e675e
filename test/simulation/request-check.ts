/**
 * What a simulated HTTP server must never receive: a tool call in a pause that it asked for, and one in a session whose tools the
 * host has not read.
 */
/** Calls are held for the list of a new session, no longer than this. */
const holdMs = 5_000;
/** Throttled reads after which calls are held no longer. */
const throttledReadsMax = 3;
const pauseMsMax = 300_000;

interface OpenedSession {
  heldUntilMs: number;
  throttledReads: number;
}

export class RequestCheck {
  readonly #sessions = new Map<string, OpenedSession>();
  #pause = { fromMs: 0, untilMs: 0 };

  opened(session: string, nowMs: number): void {
    this.#sessions.set(session, { heldUntilMs: nowMs + holdMs, throttledReads: 0 });
  }

  /**
   * A request was refused because there are too many. Without `askedMs` the pause is a second at least, and refusals of requests that
   * were sent before it do not extend it.
   */
  throttled(method: string, session: string | undefined, nowMs: number, askedMs: number): void {
    const untilMs = nowMs + Math.min(askedMs === 0 ? 1_000 : askedMs, pauseMsMax);
    if (askedMs > 0 || nowMs >= this.#pause.untilMs)
      this.#pause = { fromMs: nowMs, untilMs: Math.max(untilMs, this.#pause.untilMs) };
    const known = this.#sessions.get(session ?? '');
    // Calls that are not held any more are not held again.
    if (method !== 'tools/list' || !known || known.heldUntilMs < nowMs) return;
    known.throttledReads++;
    known.heldUntilMs = known.throttledReads < throttledReadsMax ? this.#pause.untilMs + holdMs : 0;
  }

  /** A list was answered, or could not be read for another reason. */
  listed(session: string | undefined): void {
    const known = this.#sessions.get(session ?? '');
    if (known) known.heldUntilMs = 0;
  }

  /** The pause is forgotten, as after a reload. */
  forgiven(): void {
    this.#pause = { fromMs: 0, untilMs: 0 };
  }

  /** Why the request should not have been sent. */
  wrongOf(method: string, session: string | undefined, sentAtMs: number): string | undefined {
    const { fromMs, untilMs } = this.#pause;
    if (method !== 'tools/call') return undefined;
    if (sentAtMs > fromMs && sentAtMs < untilMs) return `tools/call was sent in a pause until ${untilMs}`;
    const { heldUntilMs = 0 } = this.#sessions.get(session ?? '') ?? {};
    if (sentAtMs >= heldUntilMs) return undefined;
    return `tools/call was sent in ${session} at ${sentAtMs} before its tools were read (${heldUntilMs})`;
  }
}
