/**
 * Pauses one caller of one tool after repeated rejections, such as of a model in a loop. Rejections are results with isError,
 * and invalid params. They never count for the breaker, because the server works.
 * Not here: servers that do not answer (breaker.ts).
 *
 * Invariants: outcomes of calls that were admitted before a pause neither lengthen it nor start the next one. Any success
 * clears the history. A refusal never says that the server cannot be reached.
 */

import { backoffMs } from '../kernel/backoff.js';
import { setBounded } from '../kernel/bounded-map.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { RPC } from '../wire/rpc-codes.js';
import { compositeKey } from './composite-key.js';
import { type Call, CallResult, type Stage } from './operation.js';

export interface ThrottlePlan {
  /** Consecutive rejections that start a pause; 0 and 1 both start it with the first. */
  readonly threshold: number;
  readonly pauseMs: number;
  /** Bound of the pause, which doubles while the first call after it is rejected too. */
  readonly pauseMsMax: number;
}

export const defaultThrottlePlan: ThrottlePlan = { threshold: 5, pauseMs: 10_000, pauseMsMax: 60_000 };

interface History {
  readonly server: string;
  rejections: number;
  pauses: number;
  pausedUntilMs: number;
}

/** Beyond it the history with the oldest rejection is dropped. */
const historiesMax = 10_000;

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
    return leftMs > 0 ? throttled(call, history.rejections, Math.ceil(leftMs)) : history.pauses;
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

function throttled({ server, tool }: Call, rejections: number, retryAfterMs: number): HostError {
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
