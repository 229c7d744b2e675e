/**
 * Detects requests that a simulated HTTP server must never receive: a tool call during a pause that the server requested, and a
 * tool call in a session whose tools the host has not read.
 */
/** Longest time for which calls are held for the list of a new session. */
const holdMs = 5_000;
/** Number of throttled reads after which calls are no longer held. */
const throttledReadsMax = 3;
const pauseMsMax = 300_000;

interface OpenedSession {
  heldUntilMs: number;
  throttledReads: number;
  /** The last throttled read that prolonged a hold: its time, and the end of the hold without it. */
  lengthened: { readonly atMs: number; readonly fromMs: number };
  /** One of the open lists is that of the host; the others belong to clients. */
  readonly lists: Set<{ readonly isOpen: boolean }>;
}

/** A request that the server throttled. */
interface Refused {
  readonly session: string | undefined;
  readonly sentAtMs: number;
  readonly reply: { readonly isOpen: boolean };
}

export class RequestCheck {
  readonly #sessions = new Map<string, OpenedSession>();
  #pause = { fromMs: 0, untilMs: 0 };

  opened(session: string, nowMs: number): void {
    const heldUntilMs = nowMs + holdMs;
    const lengthened = { atMs: 0, fromMs: heldUntilMs };
    this.#sessions.set(session, { heldUntilMs, throttledReads: 0, lengthened, lists: new Set() });
  }

  /** Records a list request. If it was sent before another one was throttled, it may be the request of the host. */
  listAsked(session: string | undefined, sentAtMs: number, reply: { readonly isOpen: boolean }): void {
    const known = this.#sessions.get(session ?? '');
    if (!known) return;
    known.lists.add(reply);
    if (sentAtMs < known.lengthened.atMs) known.heldUntilMs = Math.min(known.heldUntilMs, known.lengthened.fromMs);
  }

  /**
   * Records a throttled request. Without `askedMs` the pause is at least a second, and refusals of requests that were sent before
   * the pause do not extend it. They also start no pause after that second, because the host may have doubled it.
   */
  throttled(method: string, { session, sentAtMs, reply }: Refused, nowMs: number, askedMs: number): void {
    const untilMs = nowMs + Math.min(askedMs === 0 ? 1_000 : askedMs, pauseMsMax);
    if (askedMs > 0 || (nowMs >= this.#pause.untilMs && sentAtMs > this.#pause.fromMs))
      this.#pause = { fromMs: nowMs, untilMs: Math.max(untilMs, this.#pause.untilMs) };
    const known = this.#sessions.get(session ?? '');
    // Calls whose hold has ended are not held again.
    if (method !== 'tools/list' || !known || known.heldUntilMs < nowMs) return;
    // Calls are held for the list of the host, which may be another open list.
    for (const list of known.lists) if (list !== reply && list.isOpen) return;
    known.throttledReads++;
    known.lengthened = { atMs: nowMs, fromMs: known.heldUntilMs };
    known.heldUntilMs = known.throttledReads < throttledReadsMax ? this.#pause.untilMs + holdMs : 0;
  }

  /** Records that a list was answered, or failed for another reason. */
  listed(session: string | undefined): void {
    const known = this.#sessions.get(session ?? '');
    if (known) known.heldUntilMs = 0;
  }

  /** Drops the pause, as after a reload. */
  forgiven(): void {
    this.#pause = { fromMs: 0, untilMs: 0 };
  }

  /** Why the request should not have been sent; undefined: it was allowed. */
  wrongOf(method: string, session: string | undefined, sentAtMs: number): string | undefined {
    const { fromMs, untilMs } = this.#pause;
    if (method !== 'tools/call') return undefined;
    if (sentAtMs > fromMs && sentAtMs < untilMs) return `tools/call was sent in a pause until ${untilMs}`;
    const { heldUntilMs = 0 } = this.#sessions.get(session ?? '') ?? {};
    if (sentAtMs >= heldUntilMs) return undefined;
    return `tools/call was sent in ${session} at ${sentAtMs} before its tools were read (${heldUntilMs})`;
  }
}
