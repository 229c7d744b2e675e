/**
 * Requests that are neither calls nor lists, such as `prompts/get` and `completion/complete`: guarded, charged, bounded and
 * sent as a call is, and answered with whatever the server said.
 * Not here: calls of tools (caller.ts), lists and what is kept of them (catalogue.ts).
 *
 * Invariants: what has a way of its own past guards and pins is not sent this way; a request is sent again only when not a
 * byte of it reached the server.
 */
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { KeepAlive } from '../kernel/keep-alive.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { denial, type Guard, type GuardRequest } from '../policy/allowlist.js';
import type { CallBudgets } from '../policy/call-budget.js';
import { waitMs } from '../policy/deadline.js';
import type { SlotLimits } from '../policy/list-slot.js';
import type { ToolTraits } from '../policy/operation.js';
import { embedder } from '../policy/operation.js';
import { isUnconnected, type ReconnectWaits } from '../policy/reconnect-waits.js';
import { mayReplay } from '../policy/replay.js';
import { type ServerThrottle, throughThrottle } from '../policy/server-throttle.js';
import type { CallOptions } from '../session/session.js';
import type { Era } from '../wire/channel.js';
import type { JsonText } from '../wire/frame.js';
import { checkParams } from '../wire/json-text.js';
import type { Answer } from '../wire/peer-interface.js';
import { listenMethod } from '../wire/rpc-codes.js';
import { admitted } from './admission.js';
import { type CallTarget, type TargetOf, whileHeld } from './call-target.js';
import type { HostRequestOptions } from './host-interface.js';
import type { ManagedServer } from './managed-server.js';

export interface RequesterParts {
  readonly clock: Clock;
  /** Throws when there is no such server, or the host is closed. */
  readonly serverOf: (name: string) => ManagedServer;
  readonly targetOf: TargetOf;
  readonly guards: () => readonly Guard[];
  readonly budgets: Pick<CallBudgets, 'charge'>;
  readonly serverThrottle: ServerThrottle;
  readonly reconnects: ReconnectWaits;
  readonly alive: KeepAlive;
  readonly onDenied: (request: GuardRequest) => void;
}

/** What a server answered, and in whose words. */
export type EraAnswer = Answer & { readonly era: Era };

/** Without a deadline of the caller's own, and with one: progress and people may keep it going, but not for longer. */
const requestMsMax = 10 * 60_000;
const methodCharsMax = 256;

/** They go another way, on which more is decided about them; or they are the connection's own business. */
const otherWays: ReadonlySet<string> = new Set([
  'tools/call',
  'tools/list',
  'initialize',
  listenMethod,
  'ping',
  'server/discover',
]);

/** Nothing is known of what a request does: it is not sent twice. */
const unknownTraits: ToolTraits = { isReadOnly: false, isIdempotent: false, isTrusted: false };

interface Question {
  readonly server: string;
  readonly method: string;
  readonly params: JsonText | undefined;
  readonly options: HostRequestOptions;
}

export class Requester {
  readonly #parts: RequesterParts;

  constructor(parts: RequesterParts) {
    this.#parts = parts;
  }

  async request(
    server: string,
    method: string,
    params: JsonText | undefined,
    options: HostRequestOptions = {},
  ): Promise<EraAnswer> {
    const { principal = embedder, signal } = options;
    const { clock, budgets, serverOf, targetOf, alive, serverThrottle } = this.#parts;
    const deadlineAtMs = clock.nowMs() + waitMs(options.deadlineMs, requestMsMax);
    checkMethod(server, method);
    if (params !== undefined) checkParams(params);
    this.#mustBeAllowed({ principal, server, tool: undefined, action: 'call' });
    const refused = budgets.charge({ principal, server });
    if (refused) throw refused;
    const managed = serverOf(server);
    const target = targetOf(managed, options.instance, principal.id);
    const asked = new Asked(options);
    const limits: SlotLimits = { deadlineAtMs, signal };
    alive.hold();
    try {
      const outcome = await whileHeld(target, () =>
        throughThrottle(serverThrottle, server, () =>
          admitted(managed, target, clock, { server, method, principal }, limits, () =>
            this.#ask(managed, target, { server, method, params, options }, asked, limits),
          ),
        ),
      );
      if (outcome instanceof HostError) throw outcome;
      return outcome;
    } finally {
      alive.letGo();
    }
  }

  /** An error that is returned, and not thrown, is none of the server's. */
  async #ask(
    managed: ManagedServer,
    target: CallTarget,
    question: Question,
    asked: Asked,
    limits: SlotLimits,
  ): Promise<EraAnswer | HostError> {
    const { clock, reconnects } = this.#parts;
    const send = () => this.#send(managed, target, question, asked, limits);
    let paid: (() => void) | undefined;
    for (let attempt = 0; ; attempt++) {
      try {
        return await reconnects.untilConnected(managed, limits, send).finally(() => paid?.());
      } catch (error) {
        if (!isHostError(error) || isUnconnected(error)) throw error;
        // The caller that was asked took too long, or left.
        if (asked.isAsked && (error.code === 'timeout' || error.code === 'cancelled')) return error;
        const deadlineLeftMs = limits.deadlineAtMs - clock.nowMs();
        const isSafe = mayReplay({ error, traits: unknownTraits, attempt, callerAttempt: 0, deadlineLeftMs });
        // A retry is paid for until its outcome is known.
        paid = isSafe && !asked.isAsked ? managed.retries.take() : undefined;
        if (!paid) throw error;
        // While the server is being restarted, the attempt itself waits for it: a backoff would only add to that.
        if (target.supervisor.ready()) await reconnects.backOff(attempt + 1, deadlineLeftMs, limits.signal);
      }
    }
  }

  async #send(
    { definition }: ManagedServer,
    { supervisor }: CallTarget,
    { method, params, options }: Question,
    { onServerRequest }: Asked,
    { deadlineAtMs, signal }: SlotLimits,
  ): Promise<EraAnswer> {
    const { connection } = await supervisor.acquire(deadlineAtMs, signal);
    // The request may have waited for a place or for the connection.
    const refusal = this.#parts.serverThrottle.refusal(definition.name);
    if (refusal) throw refusal;
    const { callMs } = definition.timeouts;
    const nowMs = this.#parts.clock.nowMs();
    const { onProgress, onServerNotification, principal = embedder } = options;
    const sent: CallOptions = {
      client: options.instance ?? principal.id,
      deadlineAtMs: Math.min(deadlineAtMs, nowMs + callMs),
      signal,
      onProgress,
      extend: { byMs: callMs, untilMs: Math.min(deadlineAtMs, nowMs + requestMsMax) },
      relay: options,
      onServerRequest,
      onServerNotification,
    };
    const answer = await connection.request(method, params, sent);
    return { ...answer, era: connection.facts.era };
  }

  #mustBeAllowed(request: GuardRequest): void {
    const refused = denial(this.#parts.guards, request);
    if (!refused) return;
    this.#parts.onDenied(request);
    throw refused;
  }
}

/** Remembers whether the server has asked anything on the way. */
class Asked {
  isAsked = false;
  readonly onServerRequest: HostRequestOptions['onServerRequest'];

  constructor({ onServerRequest }: HostRequestOptions) {
    if (!onServerRequest) return;
    this.onServerRequest = (request) => {
      this.isAsked = true;
      onServerRequest(request);
    };
  }
}

function checkMethod(server: string, method: unknown): void {
  const isName = typeof method === 'string' && method !== '' && method.length <= methodCharsMax;
  if (isName && !otherWays.has(method) && !method.startsWith('notifications/')) return;
  const shown = neutraliseLine(String(server), LIMITS.quotedChars);
  throw new HostError('invalid_request', `server '${shown}': the method is not one that can be asked for this way`, {
    field: 'method',
    phase: 'queued',
    execution: 'not_executed',
    hint: 'use call, tools, list or read for tools and lists; anything else by its name in the protocol',
  });
}
