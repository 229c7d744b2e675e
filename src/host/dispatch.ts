/**
 * The last stage: sends an operation to its server and decides, from the facts of a failure, whether and when to send it again.
 * Not here: permission (the earlier stages), starting the server (supervisor/).
 * Invariant: a call that may have run is sent again only if its tool is trusted and read-only or idempotent. Such a call is
 * never sent again after the server sent a question to the caller. Nothing is sent to a throttled server.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import type { Complete } from '../kernel/complete.js';
import { HostError } from '../kernel/errors.js';
import {
  type Back,
  type CallRelay,
  CallResult,
  displayName,
  namesOf,
  type Operation,
  type Outcome,
  type Result,
  type Send,
} from '../policy/operation.js';
import type { ReplayReason } from '../policy/policy-events.js';
import { isUnconnected, type ReconnectBackoff, replayReason, toOutcome } from '../policy/retry.js';
import type { ServerThrottle } from '../policy/throttles.js';
import { quote, RpcRefusal, readRpcError } from '../session/rpc-response.js';
import type { CallOptions, Session } from '../session/session.js';
import type { Acquired } from '../supervisor/supervisor.js';
import { TokenRefused } from '../transports/http/auth-token.js';
import { memberText } from '../wire/json-members.js';
import { MAY_HOLD_ERROR, MAY_HOLD_TTL } from '../wire/json-scan.js';
import { RPC } from '../wire/methods.js';
import type { Answer, CauseHandlers, DeadlineExtension, ResendCheck } from '../wire/peer-interface.js';
import type { CallTarget, ManagedServer, TargetOf } from './managed-server.js';
import { reauthorize, unauthorized } from './reauthorize.js';

/** Upper bound of a call's deadline when progress extends it. */
const callMsMax = 10 * 60_000;

export type Replayed = (call: Operation, attempt: number, reason: ReplayReason, error: HostError) => void;

/** Sends every operation except a tool call. */
type Exchange = (
  server: ManagedServer,
  operation: Operation,
  session: Session,
  options: CallOptions,
) => Promise<Result>;

export interface DispatchParts {
  /** Throws for an unknown name. */
  readonly serverOf: (name: string) => ManagedServer;
  readonly targetOf: TargetOf;
  readonly clock: Clock;
  readonly reconnects: ReconnectBackoff;
  /** Redacts and neutralises a server's text before it is quoted. */
  readonly clean: (text: string) => string;
  /** Called for each attempt: the tool list of the server may have changed while the call waited, or in a new run. */
  readonly pinRefusal: (server: string, tool: string) => HostError | undefined;
  /** Checked before each attempt: the server may have asked for fewer requests while the call waited. */
  readonly serverThrottle: Pick<ServerThrottle, 'refusal'>;
  readonly exchange: Exchange;
  readonly onReplay: Replayed;
}

export const dispatch =
  (parts: DispatchParts) =>
  (back: Back): Send => {
    const context = { ...parts, back };
    return (operation) => {
      let server: ManagedServer;
      let target: CallTarget;
      try {
        server = parts.serverOf(operation.server);
        target = targetFor(server, operation, parts.targetOf);
      } catch (error) {
        // The server was removed while the operation was queued, or no instance can be created for the caller.
        return back(operation, error as Error);
      }
      new Dispatch(server, target, operation, context).attempt();
    };
  };

/** The shared server, or for a relayed operation of a per-client server the instance of its client. */
export const targetFor = (server: ManagedServer, { relay, principal }: Operation, targetOf: TargetOf): CallTarget =>
  relay === undefined || server.definition.isolation === 'shared'
    ? server
    : targetOf(server, relay.instance, principal.id);

/** Operations of callers are never `isLongLived`. */
type SentOptions = Complete<Omit<CallOptions, 'isLongLived'>>;

/** One operation, sent as often as needed. Without a relay, no request of the server is passed on. */
class Dispatch implements Omit<SentOptions, keyof CauseHandlers | 'relay'>, DeadlineExtension, ResendCheck {
  /** Time of the current attempt. */
  nowMs: number;
  /** Failed attempts, not counting those without a connection. */
  private attempts = 0;
  /** Start of the first attempt that got no connection; -1: none yet. */
  private refusedSinceMs = -1;
  private mayHaveRun = false;
  /** True if the server has sent a question to the caller. */
  private wasAsked = false;
  /** Tells the retry budget that the current retry has ended. */
  private endRetry: (() => void) | undefined = undefined;
  /** True after one renewal of the token. The attempt after the renewal is not charged as a retry. */
  private isReauthorized = false;

  constructor(
    private readonly server: ManagedServer,
    private readonly target: CallTarget,
    private readonly call: Operation,
    private readonly context: DispatchParts & { readonly back: Back },
  ) {
    this.nowMs = call.madeAtMs;
    target.enter();
  }

  // The session reads its options from this object, which saves an allocation per call.

  get deadlineAtMs(): number {
    return Math.min(this.call.deadlineAtMs, this.nowMs + this.byMs);
  }

  get signal(): CancelSignal | undefined {
    return this.call.signal;
  }

  get onProgress(): ((params: Buffer) => void) | undefined {
    return this.call.onProgress;
  }

  get client(): string {
    return this.call.relay?.instance ?? this.call.principal.id;
  }

  get byMs(): number {
    return this.server.definition.timeouts.callMs;
  }

  get untilMs(): number {
    return Math.min(this.call.deadlineAtMs, this.nowMs + callMsMax);
  }

  get allowedUntilMs(): number {
    return this.nowMs + this.byMs;
  }

  get extend(): DeadlineExtension {
    return this;
  }

  get resend(): ResendCheck {
    return this;
  }

  refusal(): Error | undefined {
    const { server, tool } = this.call;
    const throttled = this.context.serverThrottle.refusal(server, tool);
    return throttled ?? (tool === undefined ? undefined : this.pinError(server, tool));
  }

  attempt(): void {
    const ready = this.target.supervisor.ready();
    if (ready) this.send(ready);
    else this.acquire();
  }

  private acquire(): void {
    this.target.supervisor.acquire(this.call.deadlineAtMs, this.call.signal).then(
      (acquired) => this.send(acquired),
      (error: Error) => this.over(error),
    );
  }

  private send(acquired: Acquired<Session>): void {
    const { call, context } = this;
    const { tool, args, trail, isFresh, relay } = call;
    // A fresh call is still in the tick of its earlier stages, which made these checks.
    if (!isFresh) {
      const refusal = this.refusal();
      if (refusal) return this.over(refusal);
      this.nowMs = context.clock.nowMs();
    }
    call.stage.sentAtMs = this.nowMs;
    if (trail) {
      trail.attempts++;
      trail.run = acquired.run;
    }
    const options = relay === undefined ? this : this.relaying(relay);
    if (tool !== undefined)
      return acquired.connection.callToolWithCallback(tool, args ?? '{}', options, (outcome) =>
        this.settled(outcome, acquired),
      );
    context.exchange(this.server, call, acquired.connection, options).then(
      (result) => this.over(result),
      (error: Error) => this.settled(error, acquired),
    );
  }

  private settled(outcome: Answer | Error, acquired: Acquired<Session>): void {
    if (!(outcome instanceof Error)) this.over(this.answered(outcome, acquired.connection, acquired.run));
    else if (outcome instanceof TokenRefused) this.refused(acquired, outcome);
    else this.over(outcome);
  }

  /** Lists every member: a spread would cost more than the rest of the method. */
  private relaying(relay: CallRelay): SentOptions {
    const { deadlineAtMs, signal, onProgress, nowMs, client } = this;
    const { onServerRequest: handle, onServerNotification } = relay;
    const onServerRequest: CallRelay['onServerRequest'] =
      handle &&
      ((request) => {
        this.wasAsked = true;
        // From now on, silence of the server may mean that it waits for the caller's answer.
        this.call.stage.sentAtMs = Number.POSITIVE_INFINITY;
        handle(request);
      });
    return {
      deadlineAtMs,
      signal,
      onProgress,
      nowMs,
      client,
      extend: this,
      resend: this,
      relay,
      onServerRequest,
      onServerNotification,
    };
  }

  /** The check throws if the server was removed. Its error must end the call; otherwise the caller would wait forever. */
  private pinError(server: string, tool: string): Error | undefined {
    try {
      return this.context.pinRefusal(server, tool);
    } catch (error) {
      return error as Error;
    }
  }

  private refused(acquired: Acquired<Session>, refusal: TokenRefused): void {
    if (this.isReauthorized) return this.over(unauthorized(this.target, acquired, refusal));
    this.isReauthorized = true;
    reauthorize(this.target, acquired, this.call, refusal).then(
      (error) => (error ? this.over(error) : this.attempt()),
      (error: Error) => this.over(error),
    );
  }

  private answered(
    { kind, bytes, mayHold, wasAsked }: Answer,
    { lastMessageAtMs, facts }: Session,
    run: number,
  ): Outcome {
    const { supervisor } = this.target;
    if (kind === 'error') {
      // An error answer proves that the server is alive; only a success proves that it works.
      supervisor.answered(run);
      return rejectedByServer(this.call, bytes, this.context.clean);
    }
    supervisor.succeeded(run, lastMessageAtMs);
    const isError = (mayHold & MAY_HOLD_ERROR) !== 0 && memberText(bytes, 'isError') === 'true';
    const mayBeKept = (mayHold & MAY_HOLD_TTL) !== 0 && !wasAsked;
    return new CallResult(bytes, isError, run, mayBeKept, facts.era);
  }

  private over(outcome: Outcome): void {
    // A retry counts as in flight until its outcome is known; a third attempt is another retry.
    this.endRetry?.();
    this.endRetry = undefined;
    const { server, context } = this;
    if (!(outcome instanceof Error)) {
      if (this.call.kind === 'call') server.retries.succeeded();
      if (context.reconnects.size > 0) context.reconnects.answered(server);
    } else if (outcome instanceof HostError) {
      return isUnconnected(outcome) ? this.unconnected(outcome) : this.failed(outcome);
    }
    this.end(outcome);
  }

  private failed(error: HostError): void {
    const { retries } = this.server;
    const deadlineLeftMs = this.call.deadlineAtMs - this.context.clock.nowMs();
    // Only a timeout by the limit of the server is a sign of failure: a shorter deadline of the caller proves nothing.
    if (error.code === 'timeout' && deadlineLeftMs > 0) retries.timedOut();
    const attempt = this.attempts++;
    const reason = this.isUnanswered(error) ? this.reasonFor(error, attempt, deadlineLeftMs) : undefined;
    this.endRetry = reason && retries.take();
    if (!reason || !this.endRetry) return this.fail(error);
    this.mayHaveRun ||= error.details.execution !== 'not_executed';
    this.context.onReplay(this.call, attempt + 2, reason, error);
    this.attemptLater(attempt + 1, deadlineLeftMs);
  }

  /** No connection could be opened. Not charged as a retry, because only one of the waiting operations dials at a time. */
  private unconnected(error: HostError): void {
    const { call, context, server } = this;
    const { deadlineAtMs, signal } = call;
    if (this.reasonFor(error, 0, deadlineAtMs - context.clock.nowMs()) === undefined) return this.fail(error);
    // The server was stopped while the connection was being opened.
    const refusal = this.target.supervisor.refusal();
    if (refusal?.code === 'server_stopped') return this.fail(refusal);
    if (this.refusedSinceMs < 0) this.refusedSinceMs = this.nowMs;
    context.reconnects.refused(server, { error, sinceMs: this.refusedSinceMs, deadlineAtMs, signal }, (end) => {
      if (end) return this.fail(end);
      context.onReplay(call, this.attempts + 2, 'not_executed', error);
      this.attempt();
    });
  }

  /** False if the attempt used an answer of the caller and may have run: such an answer is never sent twice. */
  private isUnanswered({ details }: HostError): boolean {
    const hasAnswer = this.wasAsked || this.call.relay?.members !== undefined;
    return !hasAnswer || details.execution === 'not_executed';
  }

  private reasonFor(error: HostError, attempt: number, deadlineLeftMs: number): ReplayReason | undefined {
    const callerAttempt = this.call.attempt;
    return replayReason({ error, traits: this.traits(), attempt, callerAttempt, deadlineLeftMs });
  }

  private attemptLater(nth: number, deadlineLeftMs: number): void {
    // While the server restarts, `attempt` waits for it; a backoff would only add to that wait.
    if (!this.target.supervisor.ready()) return this.attempt();
    // If the caller cancels meanwhile, the attempt reports that and sends nothing.
    this.context.reconnects.backOff(this.server, nth, deadlineLeftMs, this.call.signal, (end) =>
      end ? this.fail(end) : this.attempt(),
    );
  }

  private fail(error: HostError): void {
    const own = this.mayHaveRun ? uncertain(error) : error;
    this.end(this.call.kind === 'call' ? toOutcome(own, this.traits()) : own);
  }

  private end(outcome: Outcome): void {
    this.target.leave();
    try {
      this.context.back(this.call, outcome);
    } catch (error) {
      // A stage threw, which is a bug. The caller must still get an outcome.
      this.call.abandon?.(error as Error);
    }
  }

  private traits() {
    const { tool } = this.call;
    return tool === undefined ? unknownTraits : this.server.traitsOf(tool);
  }
}

/** The effect of a request is unknown, so it is sent again only if no byte of it was sent. */
const unknownTraits = { isReadOnly: false, isIdempotent: false, isTrusted: false } as const;

/** An earlier attempt may have run, even if the last one did not. */
function uncertain(error: HostError): HostError {
  return error.details.execution === 'not_executed' ? error.with({ execution: 'uncertain', cause: error }) : error;
}

function rejectedByServer(call: Operation, bytes: Buffer, clean: DispatchParts['clean']): HostError {
  const { code, message } = readRpcError(bytes);
  return new HostError(
    code === RPC.invalidParams ? 'invalid_arguments' : 'tool_error',
    `${displayName(call)}: ${quote(message, clean)}`,
    {
      ...namesOf(call),
      rpcCode: code,
      reason: 'rpc_error',
      phase: 'answered',
      execution: 'uncertain',
      cause: new RpcRefusal(bytes),
    },
  );
}
