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
  /** When the last read was throttled that held calls for longer, and until when they were held without it. */
  lengthened: { readonly atMs: number; readonly fromMs: number };
  /** One of the open lists is the host's own, the others are of its clients. */
  readonly lists: Set<{ readonly isOpen: boolean }>;
}

/** A request that was refused because there are too many. */
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

  /** A list request has arrived. If it was sent before another one was throttled, it may be the host's own. */
  listAsked(session: string | undefined, sentAtMs: number, reply: { readonly isOpen: boolean }): void {
    const known = this.#sessions.get(session ?? '');
    if (!known) return;
    known.lists.add(reply);
    if (sentAtMs < known.lengthened.atMs) known.heldUntilMs = Math.min(known.heldUntilMs, known.lengthened.fromMs);
  }

  /**
   * A request was refused because there are too many. Without `askedMs` the pause is a second at least, and refusals of requests that
   * were sent before it do not extend it. The host may have doubled that pause, so they begin none after the second either.
   */
  throttled(method: string, { session, sentAtMs, reply }: Refused, nowMs: number, askedMs: number): void {
    const untilMs = nowMs + Math.min(askedMs === 0 ? 1_000 : askedMs, pauseMsMax);
    if (askedMs > 0 || (nowMs >= this.#pause.untilMs && sentAtMs > this.#pause.fromMs))
      this.#pause = { fromMs: nowMs, untilMs: Math.max(untilMs, this.#pause.untilMs) };
    const known = this.#sessions.get(session ?? '');
    // Calls that are not held any more are not held again.
    if (method !== 'tools/list' || !known || known.heldUntilMs < nowMs) return;
    // Calls are held for the host's own list, which may be another one that is open.
    for (const list of known.lists) if (list !== reply && list.isOpen) return;
    known.throttledReads++;
    known.lengthened = { atMs: nowMs, fromMs: known.heldUntilMs };
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
