/**
 * Two throttles. `ServerThrottle` pauses a server that asked for fewer requests. `ToolThrottle` pauses one caller of one tool
 * after repeated rejections.
 * Not here: the meaning of a status (transports/http/http-errors.ts), failing servers (breaker.ts).
 */
import { backoffMs } from '../kernel/backoff.js';
import { setBounded } from '../kernel/bounded-map.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { RPC } from '../wire/methods.js';
import { compositeKey } from './composite-key.js';
import { type Call, CallResult, type Stage } from './operation.js';

/** First pause if the server names no time; it doubles with each repetition, up to the bound. */
const pauseMs = 1_000;
const pauseMsMax = 30_000;
/** Bound of a pause that the server names. */
const askedMsMax = 5 * 60_000;

interface Pause {
  untilMs: number;
  /** Consecutive pauses without a time named by the server. */
  doublings: number;
}

/**
 * A pause after HTTP 429, or 503 with Retry-After. It applies to all callers and requests, but not to control traffic
 * (initialize, ping, cancel).
 * Invariants: answers to requests that were in flight when the pause began do not double it. A pause is never shortened. The
 * first success after a pause removes its entry.
 */
export class ServerThrottle {
  readonly #clock: Clock;
  /** Pauses by server. Nearly always empty, so a call costs one comparison. */
  readonly #pauses = new Map<string, Pause>();

  constructor(clock: Clock) {
    this.#clock = clock;
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

  /** Returns the error for the caller. Starts a pause if the server asked for fewer requests; the error then has the rest of the pause as `retryAfterMs`. */
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

export const defaultThrottlePlan = {
  /** Consecutive rejections that start a pause; 0 and 1 both start it with the first. */
  threshold: 5,
  pauseMs: 10_000,
  /** Bound of the pause, which doubles while the first call after it is rejected too. */
  pauseMsMax: 60_000,
};
export type ThrottlePlan = Readonly<typeof defaultThrottlePlan>;

interface History {
  readonly server: string;
  rejections: number;
  pauses: number;
  pausedUntilMs: number;
}

/** Beyond it the history with the oldest rejection is dropped. */
const historiesMax = 10_000;

/**
 * Stops a model in a loop. Rejections are results with isError, and invalid params. They never count for the breaker, because
 * the server works.
 * Invariants: outcomes of calls that were admitted before a pause neither lengthen it nor start the next one. Any success
 * clears the history. A refusal never says that the server cannot be reached.
 */
export class ToolThrottle {
  readonly #clock: Clock;
  readonly #plan: ThrottlePlan;
  /** Histories by principal, server and tool, created by a rejection; newest last. */
  readonly #histories = new Map<string, History>();

  constructor(clock: Clock, plan: ThrottlePlan = defaultThrottlePlan) {
    this.#clock = clock;
    this.#plan = plan;
  }

  get size(): number {
    return this.#histories.size;
  }

  /** The refusal during a pause; otherwise the number of earlier pauses, to pass to `rejected`. */
  admit(call: Call): number | HostError {
    // Fast path without recent rejections: no key is built.
    if (this.#histories.size === 0) return 0;
    const history = this.#histories.get(keyOf(call));
    if (!history) return 0;
    const leftMs = history.pausedUntilMs - this.#clock.nowMs();
    return leftMs > 0 ? toolThrottled(call, history.rejections, Math.ceil(leftMs)) : history.pauses;
  }

  /** Called when the server was replaced or reloaded. */
  forget(server: string): void {
    for (const [key, history] of this.#histories) if (history.server === server) this.#histories.delete(key);
  }

  succeeded(call: Call): void {
    if (this.#histories.size > 0) this.#histories.delete(keyOf(call));
  }

  rejected(call: Call, pausesBefore: number): void {
    const key = keyOf(call);
    const history: History = this.#histories.get(key) ?? {
      server: call.server,
      rejections: 0,
      pauses: 0,
      pausedUntilMs: 0,
    };
    if (history.pauses !== pausesBefore) return;
    history.rejections++;
    if (history.rejections >= this.#plan.threshold) {
      const pauseMs = backoffMs(this.#plan.pauseMs, history.pauses, this.#plan.pauseMsMax);
      history.pauses++;
      history.pausedUntilMs = this.#clock.nowMs() + pauseMs;
    }
    setBounded(this.#histories, key, history, historiesMax);
  }
}

export const throttle = (tools: ToolThrottle): Stage<Call> => ({
  enter: (next, back) => (call) => {
    const pausesBefore = tools.admit(call);
    if (typeof pausesBefore !== 'number') return back(call, pausesBefore);
    call.stage.pauses = pausesBefore;
    next(call);
  },
  leave: (back) => (call, outcome) => {
    // Other failures say nothing about the arguments.
    const isResult = outcome instanceof CallResult;
    if (isResult ? outcome.isError : isRejection(outcome)) tools.rejected(call, call.stage.pauses);
    else if (isResult) tools.succeeded(call);
    back(call, outcome);
  },
});

/** True for a rejection by the server; refusals of the host have neither of these codes. */
const isRejection = (error: unknown): boolean =>
  isHostError(error) && (error.code === 'tool_error' || error.details.rpcCode === RPC.invalidParams);

const keyOf = ({ principal, server, tool }: Call): string => compositeKey(principal.id, server, tool);

function toolThrottled({ server, tool }: Call, rejections: number, retryAfterMs: number): HostError {
  const shown = neutraliseLine(tool, LIMITS.quotedChars);
  return new HostError('tool_throttled', `server '${server}' rejected ${shown} ${rejections} times in a row`, {
    server,
    tool,
    reason: 'rejections',
    phase: 'queued',
    execution: 'not_executed',
    actual: rejections,
    retryAfterMs,
    hint: 'read what the tool answered and change the arguments before calling it again',
  });
}
