/**
 * The last stage: sends an operation to its server and decides, from the facts of a failure, whether and when it is sent again.
 * Not here: whether the operation is allowed (the stages before), starting the server (supervisor/).
 * Invariant: a call that may have run is sent again only if its tool is read-only or idempotent and trusted, and the server
 * requested nothing of the caller on its behalf.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, type HostErrorOptions } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import {
  type CallRelay,
  CallResult,
  namesOf,
  type Operation,
  type Outcome,
  type Over,
  type Result,
  type Send,
} from '../policy/operation.js';
import type { ReplayReason } from '../policy/policy-events.js';
import { isUnconnected, type ReconnectWaits } from '../policy/reconnect-waits.js';
import { replayReason, toOutcome } from '../policy/retry.js';
import { quote, RpcRefusal, readRpcError } from '../session/rpc-response.js';
import type { CallOptions, Session } from '../session/session.js';
import type { Acquired } from '../supervisor/supervisor.js';
import { TokenRefused } from '../transports/http/auth-token.js';
import { memberText } from '../wire/json-members.js';
import { MAY_HOLD_ERROR, MAY_HOLD_TTL } from '../wire/json-scan.js';
import type { Answer, DeadlineExtension } from '../wire/peer-interface.js';
import { RPC } from '../wire/rpc-codes.js';
import type { CallTarget } from './call-target.js';
import type { ManagedServer, TargetOf } from './managed-server.js';

/** Progress extends the deadline of a call up to this. */
const callMsMax = 10 * 60_000;

/** A call is about to be sent again; `error` ended the attempt before. */
export type Replayed = (call: Operation, attempt: number, reason: ReplayReason, error: HostError) => void;

/** Sends everything but a call. */
export type Exchange = (
  server: ManagedServer,
  operation: Operation,
  session: Session,
  options: CallOptions,
) => Promise<Result>;

export interface DispatchParts {
  readonly serverOf: (name: string) => ManagedServer;
  readonly targetOf: TargetOf;
  readonly clock: Clock;
  readonly reconnects: ReconnectWaits;
  /** Redacts and neutralises a server's text before it is quoted. */
  readonly clean: (text: string) => string;
  /** Checked again for each attempt: the server's list may have changed while the call waited, or with the run. */
  readonly pinRefusal: (server: string, tool: string) => HostError | undefined;
  readonly exchange: Exchange;
  readonly onReplay: Replayed;
}

export const dispatch =
  (parts: DispatchParts) =>
  (back: Over): Send => {
    const context = { ...parts, back };
    return (operation) => {
      let server: ManagedServer;
      let target: CallTarget;
      try {
        server = parts.serverOf(operation.server);
        target = targetFor(server, operation, parts.targetOf);
      } catch (error) {
        // The server was removed while the operation was queued, or its caller can have no instance.
        return back(operation, error as Error);
      }
      new Dispatch(server, target, operation, context).attempt();
    };
  };

/** The server itself, unless the operation is relayed: that may go to the client's own instance. */
export const targetFor = (server: ManagedServer, { relay, principal }: Operation, targetOf: TargetOf): CallTarget =>
  relay === undefined ? server : targetOf(server, relay.instance, principal.id);

/** One operation, sent as often as needed. */
class Dispatch implements CallOptions, DeadlineExtension {
  private readonly server: ManagedServer;
  private readonly target: CallTarget;
  private readonly call: Operation;
  private readonly context: DispatchParts & { readonly back: Over };
  /** In the tick of the attempt. */
  nowMs: number;
  /** Failed attempts, without those that were refused a connection. */
  private attempts = 0;
  /** When the first attempt that was refused a connection began; -1 without one. */
  private refusedSinceMs = -1;
  private mayHaveRun = false;
  /** The server has requested something of the caller. */
  private wasAsked = false;
  /** Returns what a retry has taken of the retry budget. */
  private paid: (() => void) | undefined = undefined;
  /** A renewed token is worth one more attempt, which costs no retry. */
  private isReauthorized = false;

  constructor(server: ManagedServer, target: CallTarget, call: Operation, context: DispatchParts & { back: Over }) {
    this.server = server;
    this.target = target;
    this.call = call;
    this.context = context;
    this.nowMs = call.madeAtMs;
    target.enter();
  }

  // The session reads its options from here, which saves an object.

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
    const { server, tool, args, trail, isFresh, relay } = call;
    // In the tick in which the call was made, all this was just checked.
    if (!isFresh) {
      const quarantined = tool === undefined ? undefined : this.quarantine(server, tool);
      if (quarantined) return this.over(quarantined);
      this.nowMs = context.clock.nowMs();
    }
    call.stage.sentAtMs = this.nowMs;
    if (trail) {
      trail.attempts++;
      trail.run = acquired.run;
    }
    const options = relay === undefined ? this : this.relaying(relay);
    if (tool !== undefined)
      return acquired.connection.askTool(tool, args ?? '{}', options, (outcome) => this.settled(outcome, acquired));
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

  /** Written out: a spread would cost more than the rest of this. */
  private relaying(relay: CallRelay): CallOptions {
    const { deadlineAtMs, signal, onProgress, nowMs, client } = this;
    const { onServerRequest: handle, onServerNotification } = relay;
    const onServerRequest: CallRelay['onServerRequest'] =
      handle &&
      ((request) => {
        this.wasAsked = true;
        // From now on the server may be silent because it waits for the caller's answer.
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
      relay,
      onServerRequest,
      onServerNotification,
    };
  }

  /** The server may be gone by now; what the check throws ends the call, which no caller would learn of otherwise. */
  private quarantine(server: string, tool: string): Error | undefined {
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

  private answered({ kind, bytes, mayHold, wasAsked }: Answer, { heardAtMs, facts }: Session, run: number): Outcome {
    const { supervisor } = this.target;
    if (kind === 'error') {
      // The server is alive, but only a success proves that it works.
      supervisor.answered(run);
      return rejectedByServer(this.call, bytes, this.context.clean);
    }
    supervisor.succeeded(run, heardAtMs);
    const isError = (mayHold & MAY_HOLD_ERROR) !== 0 && memberText(bytes, 'isError') === 'true';
    const mayBeKept = (mayHold & MAY_HOLD_TTL) !== 0 && !wasAsked;
    return new CallResult(bytes, isError, run, mayBeKept, facts.era);
  }

  private over(outcome: Outcome): void {
    // A retry is charged until its outcome is known; a third attempt is charged again.
    this.paid?.();
    this.paid = undefined;
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
    // A caller's own deadline says nothing about whether the server keeps up.
    if (error.code === 'timeout' && deadlineLeftMs > 0) retries.timedOut();
    const attempt = this.attempts++;
    const reason = this.isUnanswered(error) ? this.reasonFor(error, attempt, deadlineLeftMs) : undefined;
    this.paid = reason && retries.take();
    if (!reason || !this.paid) return this.fail(error);
    this.mayHaveRun ||= error.details.execution !== 'not_executed';
    this.context.onReplay(this.call, attempt + 2, reason, error);
    this.attemptLater(attempt + 1, deadlineLeftMs);
  }

  /** No connection could be opened. The retry budget is not charged: of all waiting operations, one dials at a time. */
  private unconnected(error: HostError): void {
    const { call, context, server } = this;
    const { deadlineAtMs, signal } = call;
    if (this.reasonFor(error, 0, deadlineAtMs - context.clock.nowMs()) === undefined) return this.fail(error);
    if (this.refusedSinceMs < 0) this.refusedSinceMs = this.nowMs;
    context.reconnects.refused(server, { error, sinceMs: this.refusedSinceMs, deadlineAtMs, signal }, (end) => {
      if (end) return this.fail(end);
      context.onReplay(call, this.attempts + 2, 'not_executed', error);
      this.attempt();
    });
  }

  /** Whether the failed attempt used no answer of the caller: an answer that the server may have acted on is not given twice. */
  private isUnanswered({ details }: HostError): boolean {
    const hasAnswer = this.wasAsked || this.call.relay?.members !== undefined;
    return !hasAnswer || details.execution === 'not_executed';
  }

  private reasonFor(error: HostError, attempt: number, deadlineLeftMs: number): ReplayReason | undefined {
    const callerAttempt = this.call.attempt;
    return replayReason({ error, traits: this.traits(), attempt, callerAttempt, deadlineLeftMs });
  }

  private attemptLater(nth: number, deadlineLeftMs: number): void {
    // While the server is being restarted, the attempt itself waits for it: a backoff would only add to that.
    if (!this.target.supervisor.ready()) return this.attempt();
    // If the caller leaves meanwhile, the attempt reports that and sends nothing.
    void this.context.reconnects.backOff(nth, deadlineLeftMs, this.call.signal).then(() => this.attempt());
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
      // A defect of ours in a stage: the caller must not wait for ever because of it.
      this.call.abandon?.(error as Error);
    }
  }

  private traits() {
    const { tool } = this.call;
    return tool === undefined ? unknownTraits : this.server.traitsOf(tool);
  }
}

/** Nothing is known about what a request does: it is sent again only if no byte of it left. */
const unknownTraits = { isReadOnly: false, isIdempotent: false, isTrusted: false } as const;

/** An earlier attempt may have run, whatever is known about the last one. */
function uncertain(error: HostError): HostError {
  return error.details.execution === 'not_executed' ? error.with({ execution: 'uncertain', cause: error }) : error;
}

const shown = (text: string): string => neutraliseLine(text, LIMITS.quotedChars);
const nameOf = ({ server, tool, method }: Operation): string => shown(`${server}/${tool ?? method}`);

/** The server answered with an error: it is alive, and the call is over. */
function rejectedByServer(call: Operation, bytes: Buffer, clean: DispatchParts['clean']): HostError {
  const { code, message } = readRpcError(bytes);
  return new HostError(
    code === RPC.invalidParams ? 'invalid_arguments' : 'tool_error',
    `${nameOf(call)}: ${quote(message, clean)}`,
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

/** Renews a token that the server refused, once for all callers. Undefined: send the operation once more; else its outcome. */
export async function reauthorize(
  server: Pick<CallTarget, 'auth' | 'forgetCircuit' | 'supervisor'>,
  acquired: Acquired<Session>,
  call: Operation,
  refused: TokenRefused,
): Promise<HostError | undefined> {
  const outcome = (await server.auth?.recover(refused, call)) ?? 'refused';
  if (outcome === 'late') return notRenewed(call, 'timeout', 'its deadline passed');
  if (outcome === 'cancelled') return notRenewed(call, 'cancelled', 'the caller cancelled it');
  if (outcome === 'refused') return unauthorized(server, acquired, refused);
  // A server that answers is reachable, whatever becomes of the call.
  server.forgetCircuit();
  return undefined;
}

/** Nothing more is tried: from now on calls are refused before they are sent, until there is another token. */
function unauthorized(
  server: Pick<CallTarget, 'supervisor'>,
  { connection, run }: Acquired<Session>,
  refused: TokenRefused,
): HostError {
  // Calls that the server accepted before are not cut off: the last refused one ends the connection. A token without the
  // rights for one tool (`scope`) may do for the others.
  if (refused.kind === 'token' && connection.owed === 0) server.supervisor.lost(run, refused);
  return refused;
}

function notRenewed(call: Operation, code: 'timeout' | 'cancelled', why: string): HostError {
  const details: HostErrorOptions = { ...namesOf(call), reason: 'reauth', phase: 'queued', execution: 'not_executed' };
  return new HostError(
    code,
    `${nameOf(call)}: ${why} while the authorization of server '${shown(call.server)}' was renewed`,
    { ...details, hint: 'the server had refused the call, so it did not run and can be sent again' },
  );
}
