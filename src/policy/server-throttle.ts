/**
 * Pauses a server that asked for fewer requests: HTTP 429, or 503 with Retry-After. The pause applies to all callers and
 * requests, but not to control traffic (initialize, ping, cancel).
 * Not here: the meaning of a status (transports/http/http-errors.ts), failing servers (breaker.ts), rejecting tools
 * (tool-throttle.ts).
 *
 * Invariants: answers to requests that were in flight when the pause began do not double it. A pause is never shortened. The
 * first success after a pause removes its entry.
 */

import { backoffMs } from '../kernel/backoff.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Stage } from './operation.js';

export interface ServerThrottlePlan {
  /** First pause if the server names no time; it doubles with each repetition. */
  readonly pauseMs: number;
  /** Bound of that pause. */
  readonly pauseMsMax: number;
  /** Bound of a pause that the server names. */
  readonly askedMsMax: number;
}

const defaultServerThrottlePlan: ServerThrottlePlan = {
  pauseMs: 1_000,
  pauseMsMax: 30_000,
  askedMsMax: 5 * 60_000,
};

interface Pause {
  untilMs: number;
  /** Consecutive pauses without a time named by the server. */
  doublings: number;
}

export class ServerThrottle {
  readonly #clock: Clock;
  readonly #plan: ServerThrottlePlan;
  /** Pauses by server. Nearly always empty, so a call costs one comparison. */
  readonly #pauses = new Map<string, Pause>();

  constructor(clock: Clock, plan: ServerThrottlePlan = defaultServerThrottlePlan) {
    this.#clock = clock;
    this.#plan = plan;
  }

  get size(): number {
    return this.#pauses.size;
  }

  /** Remaining pause of the server; undefined if requests may be sent. */
  leftMs(server: string): number | undefined {
    const pause = this.#pauses.size === 0 ? undefined : this.#pauses.get(server);
    if (!pause) return undefined;
    const leftMs = Math.ceil(pause.untilMs - this.#clock.nowMs());
    return leftMs > 0 ? leftMs : undefined;
  }

  refusal(server: string, tool?: string): HostError | undefined {
    const leftMs = this.leftMs(server);
    return leftMs === undefined ? undefined : throttled(server, tool, leftMs);
  }

  /** Returns the error for the caller. Starts a pause if the server asked for fewer requests; the error then has its length. */
  failed(server: string, error: unknown): unknown {
    if (!isHostError(error) || !asksForFewer(error)) return error;
    this.#pause(server, error.details.retryAfterMs ?? 0);
    const retryAfterMs = this.leftMs(server) ?? 0;
    return error.with({ reason: 'throttled', retryAfterMs, hint: hintFor(retryAfterMs) });
  }

  /** A success during a pause belongs to an earlier request, so it does not end the pause. */
  succeeded(server: string): void {
    if (this.#pauses.size > 0 && this.leftMs(server) === undefined) this.#pauses.delete(server);
  }

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

/** Runs before the breaker, which must not spend a trial on a call that is not sent. */
export const refuseThrottled = (servers: ServerThrottle): Stage => ({
  enter: (next, back) => (call) => {
    const refusal = servers.size === 0 ? undefined : servers.refusal(call.server, call.tool);
    if (refusal) return back(call, refusal);
    next(call);
  },
});

/** Runs after the queue: the pause begins before the slot of the refused call is free, so no queued call is sent. */
export const noteThrottling = (servers: ServerThrottle): Stage => ({
  enter: refuseThrottled(servers).enter,
  leave: (back) => (call, outcome) => {
    if (outcome instanceof Error) return back(call, servers.failed(call.server, outcome) as Error);
    if (servers.size > 0) servers.succeeded(call.server);
    back(call, outcome);
  },
});

/** Refusals of the host with `overloaded` have no HTTP status. */
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
