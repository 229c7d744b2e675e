/**
 * The client side of the Streamable HTTP transport: session id, broken streams, and the reports of calls. Each frame is one
 * POST, answered by JSON or an event stream.
 * Not here: connections and bounds (http-channel.ts), one POST (post-call.ts), GET streams (get-stream.ts).
 * Invariants:
 * - In an era where closing a response cancels the request, a broken stream fails the request. In a legacy session a broken
 *   stream is resumed if its events have ids, and a disconnect cancels nothing (`EraRules`).
 * - An answer settles its request only on the stream of that request, original or resumed.
 */
import type { Dispatcher } from 'undici';
import { HostError } from '../../kernel/errors.js';
import type { OutboundFrame, SessionReset, Withdrawal } from '../../wire/channel.js';
import { type Envelope, MessageDecoder } from '../../wire/envelope.js';
import { NOTIFICATION } from '../../wire/methods.js';
import { ResumableStreams } from './get-stream.js';
import { headerText, isSessionId, type ResponseHeaders } from './headers.js';
import { HttpChannel } from './http-channel.js';
import { BadRequest, statusError } from './http-errors.js';
import type { ExchangeSink } from './http-exchange.js';
import type { HttpDeps, HttpSpec } from './http-pool.js';
import { type CallHost, PostCall } from './post-call.js';

/** Throws `invalid_spec` naming the field. The first frame opens the connection. */
export function openStreamableHttp(spec: HttpSpec, deps: HttpDeps): StreamableHttpChannel {
  return new StreamableHttpChannel(spec, deps);
}

/** Maximum time that calls wait for the server to accept `notifications/initialized`. */
const initializedMsMax = 2_000;
const endSessionMsMax = 2_000;

export class StreamableHttpChannel extends HttpChannel<PostCall> implements CallHost {
  readonly kind = 'streamable-http';
  readonly #decoder = new MessageDecoder(this.counters);
  readonly #streams = new ResumableStreams(this);

  constructor(spec: HttpSpec, deps: HttpDeps) {
    super(spec, deps);
    this.endpoint = this.url;
  }

  get sessionId(): string | undefined {
    return this.headers.sessionId;
  }

  /**
   * Drops the session; the next `initialize` may open another. Calls wait until the caller reports the outcome. Calls that already
   * wait for a connection are returned unsent: a call in a new session has to be checked against its tools first.
   */
  resetSession(): SessionReset {
    this.#streams.closeStandalone();
    this.headers.setSession(undefined);
    const release = this.calls.hold();
    const facts = {
      server: this.server,
      reason: 'session_expired',
      phase: 'queued',
      execution: 'not_executed',
    } as const;
    const returned = new HostError(
      'transport',
      `server '${this.server}' lost its session before the request was sent`,
      facts,
    );
    for (const call of this.calls.waiting) call.fail(returned);
    return {
      opened: release,
      failed: (error) => {
        for (const call of this.calls.waiting) call.fail(error);
        release();
      },
    };
  }

  override withdraw(frame: OutboundFrame): Withdrawal {
    const era = this.callOf(frame)?.era ?? this.headers.eraOf(frame);
    const withdrawal = super.withdraw(frame);
    return withdrawal === 'notify' && era?.closeCancels ? 'aborted' : withdrawal;
  }

  /** Opens the stream for messages without a request, if the era has one. */
  openServerStream(): void {
    if (!this.closedBy && this.headers.mayHaveSession) this.#streams.openStandalone();
  }

  // --- reports of calls (CallHost)

  decode(bytes: Buffer, deliver: (envelope: Envelope) => void): void {
    this.#decoder.decode(bytes, 0, bytes.length, deliver);
  }

  message(envelope: Envelope, frame: OutboundFrame): void {
    if (!this.closedBy) this.listener?.message(envelope, frame);
  }

  junk(): void {
    this.counters.junk++;
  }

  opened(call: PostCall, status: number, headers: ResponseHeaders): HostError | undefined {
    this.releaseBytes(call);
    if (status < 300) this.#streams.tokenAccepted(call.token);
    if (!call.frame.http?.opens?.hasHttpSession || status > 299) return undefined;
    const id = headerText(headers, 'mcp-session-id');
    if (id !== undefined && !isSessionId(id)) {
      return new HostError('protocol_error', `server '${this.server}' sent a session id that is not visible ASCII`, {
        server: this.server,
        reason: 'session_id',
        execution: 'uncertain',
      });
    }
    this.headers.setSession(id);
    return undefined;
  }

  answered(call: PostCall): void {
    this.forget(call);
    if (call.streaming) this.linger(call);
  }

  refused(call: PostCall, status: number, headers: ResponseHeaders, rpcCode: number | undefined): void {
    const { server, deps } = this;
    const inSession = call.sessionId !== undefined;
    const error = statusError({
      server,
      status,
      headers,
      inSession,
      rpcCode,
      now: deps.clock.date(),
      sent: call.token,
    });
    this.failed(call, call.isInDoubt ? new BadRequest(error, call.refusalAnswer) : error);
  }

  broke(call: PostCall, error: HostError): void {
    const { lastEventId } = call;
    if (call.era?.hasHttpSession === false || lastEventId === undefined || this.closedBy) call.fail(error);
    else this.#streams.resume(call, lastEventId);
  }

  // --- reports of the standalone stream

  receiveStandalone(data: Buffer): void {
    this.decode(data, (envelope) => {
      if (envelope.kind === 'result' || envelope.kind === 'error') this.junk();
      else if (!this.closedBy) this.listener?.message(envelope, undefined);
    });
  }

  sessionMaybeLost(): void {
    if (!this.closedBy) this.listener?.sessionMaybeLost?.();
  }

  // --- for the base class

  protected newCall(frame: OutboundFrame, isControl: boolean): PostCall {
    return new PostCall(this, frame, this.headers.eraOf(frame), isControl);
  }

  protected override dispatch(call: PostCall, pool: Dispatcher): void {
    if (!call.frame.http?.opens && call.era?.hasHttpSession !== false) call.sessionId = this.headers.sessionId;
    super.dispatch(call, pool);
  }

  protected override sendOneWay(frame: OutboundFrame): void {
    super.sendOneWay(frame, frame.method === NOTIFICATION.initialized ? this.#holdCalls() : undefined);
  }

  protected override forget(call: PostCall): void {
    super.forget(call);
    this.#streams.forget(call);
  }

  protected closeStreams(): void {
    this.#streams.close();
  }

  /** DELETE ends the session. Many servers answer 405, so the response is ignored and awaited only briefly. */
  protected override endSession(): Promise<void> {
    if (this.headers.sessionId === undefined) return Promise.resolve();
    const { clock } = this.deps;
    return new Promise((resolve) => {
      const ignore = () => undefined;
      const released = () => {
        cancel();
        resolve();
      };
      const sink: ExchangeSink = { started: ignore, head: ignore, data: ignore, end: ignore, failed: ignore, released };
      const cancel = clock.at(clock.nowMs() + endSessionMsMax, () => {
        exchange.abort();
        resolve();
      });
      const exchange = this.exchange('DELETE', this.streamPool, this.headers.end(), null, sink);
    });
  }

  /** Calls wait until the server has accepted `initialized`, which uses another connection, or until `initializedMsMax`. */
  #holdCalls(): () => void {
    const { clock } = this.deps;
    const release = this.calls.hold();
    const cancel = clock.at(clock.nowMs() + initializedMsMax, release);
    return () => {
      cancel();
      release();
    };
  }
}
