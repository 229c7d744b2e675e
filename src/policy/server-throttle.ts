/**
 * Sends nothing to a server for a while after it asked for fewer requests: HTTP 429, or 503 with Retry-After.
 * The whole server is throttled, for all callers and all requests: the limit is the server's, not the caller's. Control traffic
 * (initialize, ping, cancel) does not pass here.
 * Not here: what a status means (transports/http/http-errors.ts), servers that fail (breaker.ts), tools that reject (tool-throttle.ts).
 *
 * Invariants: answers to requests that were in flight when the pause began do not double it; a pause is never shortened; there is
 * at most one entry for each server, and none once the server has answered after its pause.
 */

import { backoffMs } from '../kernel/backoff.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Stage } from './operation.js';

export interface ServerThrottlePlan {
  /** Where the server does not say how long: this, doubling while it repeats … */
  readonly pauseMs: number;
  /** … to this. */
  readonly pauseMsMax: number;
  /** The longest pause that a server can ask for. */
  readonly askedMsMax: number;
}

const defaultServerThrottlePlan: ServerThrottlePlan = {
  pauseMs: 1_000,
  pauseMsMax: 30_000,
  askedMsMax: 5 * 60_000,
};

interface Pause {
  untilMs: number;
  /** Pauses in a row for which the server named no length. */
  doublings: number;
}

export class ServerThrottle {
  readonly #clock: Clock;
  readonly #plan: ServerThrottlePlan;
  /** By server. Empty nearly always, so that a call costs one comparison. */
  readonly #pauses = new Map<string, Pause>();

  constructor(clock: Clock, plan: ServerThrottlePlan = defaultServerThrottlePlan) {
    this.#clock = clock;
    this.#plan = plan;
  }

  get size(): number {
    return this.#pauses.size;
  }

  /** How long nothing is sent to the server; undefined when requests may be sent. */
  leftMs(server: string): number | undefined {
    const pause = this.#pauses.size === 0 ? undefined : this.#pauses.get(server);
    if (!pause) return undefined;
    const leftMs = Math.ceil(pause.untilMs - this.#clock.nowMs());
    return leftMs > 0 ? leftMs : undefined;
  }

  /** What a request is refused with during a pause. */
  refusal(server: string, tool?: string): HostError | undefined {
    const leftMs = this.leftMs(server);
    return leftMs === undefined ? undefined : throttled(server, tool, leftMs);
  }

  /** Returns the error for the caller. If the server asked for fewer requests, a pause begins, and the error says how long it is. */
  failed(server: string, error: unknown): unknown {
    if (!isHostError(error) || !asksForFewer(error)) return error;
    this.#pause(server, error.details.retryAfterMs ?? 0);
    const retryAfterMs = this.leftMs(server) ?? 0;
    return error.with({ reason: 'throttled', retryAfterMs, hint: hintFor(retryAfterMs) });
  }

  /** An answer that comes during a pause was asked for before it, and says nothing about what comes after. */
  succeeded(server: string): void {
    if (this.#pauses.size > 0 && this.leftMs(server) === undefined) this.#pauses.delete(server);
  }

  /** The server is gone, or another one has taken its name. */
  forget(server: string): void {
    this.#pauses.delete(server);
  }

  #pause(server: string, askedMs: number): void {
    const { pauseMs, pauseMsMax, askedMsMax } = this.#plan;
    const nowMs = this.#clock.nowMs();
    const pause = this.#pauses.get(server) ?? { untilMs: nowMs, doublings: 0 };
    this.#pauses.set(server, pause);
    if (askedMs > 0) pause.untilMs = Math.max(pause.untilMs, nowMs + Math.min(askedMs, askedMsMax));
    else if (pause.untilMs <= nowMs) pause.untilMs = nowMs + backoffMs(pauseMs, pause.doublings++, pauseMsMax);
  }
}

/** Before the breaker, which must not spend a trial on a call that is not sent. */
export const refuseThrottled = (servers: ServerThrottle): Stage => ({
  enter: (next, back) => (call) => {
    const refusal = servers.size === 0 ? undefined : servers.refusal(call.server, call.tool);
    if (refusal) return back(call, refusal);
    next(call);
  },
});

/**
 * After the queue: a pause begins before the place of the refused call goes to the next one, and calls that waited for a place
 * are not sent during it.
 */
export const noteThrottling = (servers: ServerThrottle): Stage => ({
  enter: refuseThrottled(servers).enter,
  leave: (back) => (call, outcome) => {
    if (outcome instanceof Error) return back(call, servers.failed(call.server, outcome) as Error);
    if (servers.size > 0) servers.succeeded(call.server);
    back(call, outcome);
  },
});

/** Our own refusals with `overloaded` have no HTTP status. */
const asksForFewer = ({ code, details }: HostError): boolean =>
  code === 'overloaded' && details.httpStatus !== undefined;

const hintFor = (retryAfterMs: number): string =>
  `nothing is sent to it for ${Math.max(1, Math.ceil(retryAfterMs / 1_000))} s; call it less often`;

const throttled = (server: string, tool: string | undefined, retryAfterMs: number): HostError =>
  new HostError('overloaded', `server '${server}' asked for fewer requests`, {
    server,
    ...(tool === undefined ? {} : { tool }),
    reason: 'throttled',
    phase: 'queued',
    execution: 'not_executed',
    retryAfterMs,
    hint: hintFor(retryAfterMs),
  });
