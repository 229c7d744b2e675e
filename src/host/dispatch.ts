/**
 * The last stage: sends a call to its server and decides, from what is known of a failure, whether and when it is sent again.
 * Not here: whether the call is allowed (the stages before), starting the server (supervisor/).
 * Invariant: a call that may have run is sent again only if its tool is read-only or idempotent and trusted, and nobody was
 * asked anything because of it.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { ReplayReason } from '../policy/call-events.js';
import { type Call, type CallRelay, CallResult, type Outcome, type Over, type Send } from '../policy/operation.js';
import { isUnconnected, type ReconnectWaits } from '../policy/reconnect-waits.js';
import { replayReason, toOutcome } from '../policy/replay.js';
import { quote, RpcRefusal, readRpcError } from '../session/rpc-response.js';
import type { CallOptions, Session } from '../session/session.js';
import type { Acquired } from '../supervisor/supervisor.js';
import { TokenRefused } from '../transports/http/auth-token.js';
import { memberText } from '../wire/json-members.js';
import { MAY_HOLD_ERROR, MAY_HOLD_TTL } from '../wire/json-scan.js';
import type { Answer, DeadlineExtension } from '../wire/peer-interface.js';
import { RPC } from '../wire/rpc-codes.js';
import type { CallTarget, TargetOf } from './call-target.js';
import type { ManagedServer } from './managed-server.js';
import { reauthorize, unauthorized } from './reauthorize.js';

/** Progress may keep a call going, but not for longer than this. */
const callMsMax = 10 * 60_000;

/** A call is about to be sent again; `error` is what the attempt before ended with. */
export type Replayed = (call: Call, attempt: number, reason: ReplayReason, error: HostError) => void;

export interface DispatchParts {
  readonly serverOf: (name: string) => ManagedServer;
  /** Where calls of whoever has an instance of its own go. */
  readonly targetOf: TargetOf;
  readonly clock: Clock;
  /** When a call is sent again. */
  readonly reconnects: ReconnectWaits;
  /** Redacts and neutralises what a server said before it is quoted. */
  readonly clean: (text: string) => string;
  /** Asked again for each attempt: what a server lists may have changed while the call waited, or with the run. */
  readonly pinRefusal: (server: string, tool: string) => HostError | undefined;
  readonly onReplay: Replayed;
}

/** What every call here has in common. */
interface Way extends DispatchParts {
  readonly back: Over;
}

export const dispatch =
  (parts: DispatchParts) =>
  (back: Over): Send => {
    const way: Way = { ...parts, back };
    return (call) => {
      let server: ManagedServer;
      let target: CallTarget;
      try {
        server = parts.serverOf(call.server);
        target = call.relay === undefined ? server : parts.targetOf(server, call.relay.instance, call.principal.id);
      } catch (error) {
        // It was removed while the call waited for its turn, or its caller can have no instance.
        return back(call, error as Error);
      }
      new Dispatch(server, target, call, way).attempt();
    };
  };

/** One call on its way to a server and back, as often as that takes. */
class Dispatch implements CallOptions, DeadlineExtension {
  // One for each call. Members are declared only, and not #private: either would be made first and given its value afterwards.
  declare private readonly server: ManagedServer;
  declare private readonly target: CallTarget;
  declare private readonly call: Call;
  declare private readonly way: Way;
  /** In the tick of the attempt. */
  declare nowMs: number;
  /** Failed attempts, those that were refused a connection not counted. */
  declare private attempts: number;
  /** When the first attempt that was refused a connection began; -1 without one. */
  declare private refusedSinceMs: number;
  declare private mayHaveRun: boolean;
  /** The server has asked its caller something: to ask again would be another matter. */
  declare private wasAsked: boolean;
  declare private paid: (() => void) | undefined;
  /** Once per call: another token is worth one more try, which nobody pays for. */
  declare private isReauthorized: boolean;

  constructor(server: ManagedServer, target: CallTarget, call: Call, way: Way) {
    this.server = server;
    this.target = target;
    this.call = call;
    this.way = way;
    this.nowMs = call.madeAtMs;
    this.attempts = 0;
    this.refusedSinceMs = -1;
    this.mayHaveRun = false;
    this.wasAsked = false;
    this.paid = undefined;
    this.isReauthorized = false;
    target.enter();
  }

  // What the session is asked with is read from here: it costs no object of its own.

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
    const { server, tool, args, trail, isFresh, relay } = this.call;
    // In the tick that the call was made in, all this was just looked at.
    if (!isFresh) {
      const quarantined = this.quarantine(server, tool);
      if (quarantined) return this.over(quarantined);
      this.nowMs = this.way.clock.nowMs();
    }
    this.call.notes.sentAtMs = this.nowMs;
    if (trail) {
      trail.attempts++;
      trail.run = acquired.run;
    }
    const options = relay === undefined ? this : this.relaying(relay);
    acquired.connection.askTool(tool, args, options, (outcome) => this.told(outcome, acquired));
  }

  private told(outcome: Answer | Error, acquired: Acquired<Session>): void {
    if (!(outcome instanceof Error)) this.over(this.answered(outcome, acquired.connection, acquired.run));
    else if (outcome instanceof TokenRefused) this.refused(acquired, outcome);
    else this.over(outcome);
  }

  /** Written out: copying members would cost more than the rest of this. */
  private relaying(relay: CallRelay): CallOptions {
    const { deadlineAtMs, signal, onProgress, nowMs, client } = this;
    const { onServerRequest: ask, onServerNotification } = relay;
    const onServerRequest: CallRelay['onServerRequest'] =
      ask &&
      ((request) => {
        this.wasAsked = true;
        // From now on the server may be silent because it waits for the caller's answer.
        this.call.notes.sentAtMs = Number.POSITIVE_INFINITY;
        ask(request);
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

  /** Whoever is asked may be gone by now, and nobody would hear of it: what it throws ends the call. */
  private quarantine(server: string, tool: string): Error | undefined {
    try {
      return this.way.pinRefusal(server, tool);
    } catch (error) {
      return error as Error;
    }
  }

  private refused(acquired: Acquired<Session>, refusal: TokenRefused): void {
    if (this.isReauthorized) return this.over(unauthorized(this.target, acquired, refusal));
    this.isReauthorized = true;
    reauthorize(this.target, acquired, this.call, refusal).then(
      (told) => (told ? this.over(told) : this.attempt()),
      (error: Error) => this.over(error),
    );
  }

  private answered({ kind, bytes, mayHold, wasAsked }: Answer, { heardAtMs, facts }: Session, run: number): Outcome {
    const { supervisor } = this.target;
    if (kind === 'error') {
      // It is alive, but an error is no success: only what a server can do proves it.
      supervisor.answered(run);
      return rejectedByServer(this.call, bytes, this.way.clean);
    }
    supervisor.succeeded(run, heardAtMs);
    const isError = (mayHold & MAY_HOLD_ERROR) !== 0 && memberText(bytes, 'isError') === 'true';
    const mayBeKept = (mayHold & MAY_HOLD_TTL) !== 0 && !wasAsked;
    return new CallResult(bytes, isError, run, mayBeKept, facts.era);
  }

  private over(outcome: Outcome): void {
    // A retry is paid for until its outcome is known; a third attempt pays anew.
    this.paid?.();
    this.paid = undefined;
    const { server, way } = this;
    if (!(outcome instanceof Error)) {
      server.retries.succeeded();
      if (way.reconnects.size > 0) way.reconnects.answered(server);
    } else if (outcome instanceof HostError) {
      return isUnconnected(outcome) ? this.unconnected(outcome) : this.failed(outcome);
    }
    this.end(outcome);
  }

  private failed(error: HostError): void {
    const { retries } = this.server;
    const deadlineLeftMs = this.call.deadlineAtMs - this.way.clock.nowMs();
    // A caller whose own time ran out is no sign of a server that cannot keep up.
    if (error.code === 'timeout' && deadlineLeftMs > 0) retries.timedOut();
    const attempt = this.attempts++;
    const reason = this.isUnanswered(error) ? this.reasonFor(error, attempt, deadlineLeftMs) : undefined;
    this.paid = reason && retries.take();
    if (!reason || !this.paid) return this.fail(error);
    this.mayHaveRun ||= error.details.execution !== 'not_executed';
    this.way.onReplay(this.call, attempt + 2, reason, error);
    this.attemptLater(attempt + 1, deadlineLeftMs);
  }

  /** No connection could be opened. The retry budget is not charged: of all the calls that wait, one dials at a time. */
  private unconnected(error: HostError): void {
    const { call, way, server } = this;
    const { deadlineAtMs, signal } = call;
    if (this.reasonFor(error, 0, deadlineAtMs - way.clock.nowMs()) === undefined) return this.fail(error);
    if (this.refusedSinceMs < 0) this.refusedSinceMs = this.nowMs;
    way.reconnects.refused(server, { error, sinceMs: this.refusedSinceMs, deadlineAtMs, signal }, (end) => {
      if (end) return this.fail(end);
      way.onReplay(call, this.attempts + 2, 'not_executed', error);
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
    void this.way.reconnects.backOff(nth, deadlineLeftMs, this.call.signal).then(() => this.attempt());
  }

  private fail(error: HostError): void {
    this.end(toOutcome(this.mayHaveRun ? uncertain(error) : error, this.traits()));
  }

  private end(outcome: Outcome): void {
    this.target.leave();
    try {
      this.way.back(this.call, outcome);
    } catch (error) {
      // A mistake of ours on the way back. The caller must not wait for ever because of it.
      this.call.abandon?.(error as Error);
    }
  }

  private traits() {
    return this.server.traitsOf(this.call.tool);
  }
}

/** What the last attempt promises is no promise about the ones before. */
function uncertain(error: HostError): HostError {
  return error.details.execution === 'not_executed' ? error.with({ execution: 'uncertain', cause: error }) : error;
}

/** The server answered, if only with an error: it is alive, and the call is over. */
function rejectedByServer({ server, tool }: Call, bytes: Buffer, clean: DispatchParts['clean']): HostError {
  const { code, message } = readRpcError(bytes);
  return new HostError(
    code === RPC.invalidParams ? 'invalid_arguments' : 'tool_error',
    `${neutraliseLine(`${server}/${tool}`, LIMITS.quotedChars)}: ${quote(message, clean)}`,
    {
      server,
      tool,
      rpcCode: code,
      reason: 'rpc_error',
      phase: 'answered',
      execution: 'uncertain',
      cause: new RpcRefusal(bytes),
    },
  );
}
