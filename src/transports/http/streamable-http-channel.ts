/**
 * The Streamable HTTP transport, client side, both eras: each frame is one POST, answered by JSON or by an event stream.
 * HTTP/1.1 only. Here: the session id, and who is told what.
 * Left to others: one POST (post-call.ts), whose turn it is (call-lane.ts, notice-lane.ts), the GET streams of the legacy
 * era (legacy-streams.ts), deadlines of calls and retries (the peer and policy).
 *
 * Invariants:
 * - Calls, control traffic (control-traffic.ts), notices (other notifications and answers) and GET streams have connections
 *   and bounds of their own, so that an answer the server waits for never queues behind the very calls that wait for the
 *   server, a session can be opened however many calls are busy, and no call is refused because of notices.
 * - A frame that waits here has not been handed to undici; withdrawing it leaves nothing behind.
 * - Modern era: a broken stream is a lost request, closing it is the cancel. Legacy: a broken stream is resumed when the
 *   server gave its events ids, and a disconnect cancels nothing.
 * - An answer settles its request only on the request's own stream, first or resumed.
 */
import type { Dispatcher } from 'undici';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import {
  type Agreement,
  type Channel,
  type ChannelListener,
  frameBytes,
  frameText,
  type OutboundFrame,
  type SessionReset,
  type Withdrawal,
} from '../../wire/channel.js';
import type { Envelope } from '../../wire/envelope.js';
import { MessageDecoder } from '../../wire/message-decoder.js';
import { listenMethod, NOTIFICATION } from '../../wire/rpc-codes.js';
import { notOpen, overloaded } from '../../wire/wire-errors.js';
import { BadRequest } from './bad-request.js';
import { CallLane } from './call-lane.js';
import { ConnectionSlots } from './connection-slots.js';
import { controlConnections, controlNoticeMsMax, isControl } from './control-traffic.js';
import { endSession } from './end-session.js';
import { checkFacts, configuredHeaders, isSessionId, RequestHeaders } from './headers.js';
import { type ExchangeSink, HttpExchange, type ResponseHeaders } from './http-exchange.js';
import { connectionsDefault, type HttpDeps, type HttpSpec, openPool, specUrl } from './http-pool.js';
import { LegacyStreams } from './legacy-streams.js';
import { NoticeLane, newHttpCounters, noticeConnectionsMax, noticeTimeoutMs } from './notice-lane.js';
import { type CallHost, PostCall } from './post-call.js';
import { StallWatch } from './stall-watch.js';
import { headerText, statusError } from './status-error.js';

/** Throws `invalid_spec` naming the field. Dials nothing until the first frame. */
export function openStreamableHttp(spec: HttpSpec, deps: HttpDeps): StreamableHttpChannel {
  return new StreamableHttpChannel(spec, deps);
}

/** How long calls wait for the server to take `notifications/initialized`. */
const initializedMsMax = 2_000;

export class StreamableHttpChannel implements Channel {
  readonly kind = 'streamable-http';
  readonly counters = newHttpCounters();
  readonly #server: string;
  readonly #url: URL;
  readonly #deps: HttpDeps;
  readonly #lane: CallLane;
  readonly #controlLane: CallLane;
  readonly #notices: NoticeLane;
  readonly #controlNotices: NoticeLane;
  readonly #stalls: StallWatch;
  readonly #streams: LegacyStreams;
  readonly #callPool: Dispatcher;
  readonly #controlPool: Dispatcher;
  readonly #noticePool: Dispatcher;
  readonly #streamPool: Dispatcher;
  readonly #headers: RequestHeaders;
  readonly #host: CallHost;
  #listener: ChannelListener | undefined;
  #agreement: Agreement | undefined;
  #closed = false;
  #closing: Promise<void> | undefined;

  /** Requests that are owed an answer. */
  readonly #open = new Map<OutboundFrame, PostCall>();
  #pendingBytes = 0;

  constructor(spec: HttpSpec, deps: HttpDeps) {
    this.#server = spec.server;
    this.#url = specUrl(spec);
    this.#deps = deps;
    const connections = spec.connections ?? connectionsDefault;
    this.#headers = new RequestHeaders(configuredHeaders(spec.server, spec.headers), spec.tokens);
    this.#callPool = openPool(spec, deps, connections);
    this.#controlPool = openPool(spec, deps, controlConnections);
    this.#noticePool = openPool(spec, deps, noticeConnectionsMax);
    // One stream may take the place of another that is still open.
    this.#streamPool = openPool(spec, deps, Math.max(connections, 2));
    this.#host = this.#callHost(new MessageDecoder(this.counters));
    this.#lane = new CallLane(new ConnectionSlots(connections), (call) => this.#dispatch(call));
    const control = new ConnectionSlots(controlConnections);
    // Subscribed first: a waiting request gets a freed control connection before a waiting notification.
    this.#controlLane = new CallLane(control, (call) => this.#dispatch(call, this.#controlPool));
    const notices = { clock: deps.clock, counters: this.counters };
    this.#controlNotices = new NoticeLane({
      ...notices,
      slots: control,
      timeoutMs: controlNoticeMsMax,
      post: (frame, sink) => this.#post(frame, this.#controlPool, sink),
    });
    this.#notices = new NoticeLane({
      ...notices,
      slots: new ConnectionSlots(noticeConnectionsMax),
      timeoutMs: noticeTimeoutMs,
      post: (frame, sink) => this.#post(frame, this.#noticePool, sink),
    });
    this.#stalls = new StallWatch(deps.clock, (activity) => this.#listener?.stalled?.(activity));
    this.#streams = new LegacyStreams({
      server: spec.server,
      clock: deps.clock,
      random: deps.random,
      open: (lastEventId, sink) => this.#get(lastEventId, sink),
      token: () => this.#headers.token,
      onData: (data) => this.#host.decode(data, (envelope) => this.#unasked(envelope)),
      onSessionDoubted: () => {
        if (!this.#closed) this.#listener?.sessionDoubted?.();
      },
    });
  }

  /** The session the server gave us, while we hold one. */
  get sessionId(): string | undefined {
    return this.#headers.sessionId;
  }

  start(listener: ChannelListener): void {
    this.#listener = listener;
  }

  adopt(agreement: Agreement): void {
    this.#agreement = agreement;
    this.#headers.adopt(agreement);
  }

  /** Forgets the session; the next `initialize` may bring another. Calls wait until the caller reports the outcome. */
  resetSession(): SessionReset {
    this.#streams.closeStandalone();
    this.#headers.holdSession(undefined);
    const release = this.#lane.hold();
    return {
      opened: release,
      failed: (error) => {
        for (const call of this.#lane.waiting) call.fail(error);
        release();
      },
    };
  }

  send(frame: OutboundFrame): HostError | undefined {
    if (this.#closed || !this.#listener) return notOpen(this.#server);
    const refused = checkFacts(this.#server, frame.http);
    if (refused) return refused;
    if (frame.kind !== 'request') {
      const lane = isControl(frame) ? this.#controlNotices : this.#notices;
      lane.add(frame, frame.method === NOTIFICATION.initialized ? this.#holdUntilOpen() : undefined);
      return undefined;
    }
    if (this.#pendingBytes + frame.bytes > LIMITS.outboundBytes) return overloaded(this.#server, this.#pendingBytes);
    const call = new PostCall(this.#host, frame, this.#headers.eraOf(frame.method), isControl(frame));
    this.#pendingBytes += frame.bytes;
    this.#open.set(frame, call);
    // What stays open must not take one of the places of those that are soon over.
    if (frame.method === listenMethod) this.#dispatch(call, this.#streamPool);
    else this.#laneOf(call).add(call);
    if (frame.phase === 'queued' && !call.isControl) {
      call.isWaiting = true;
      this.#stalls.waiting();
    }
    return undefined;
  }

  withdraw(frame: OutboundFrame): Withdrawal {
    const call = this.#open.get(frame);
    const era = call?.era ?? this.#headers.eraOf(frame.method);
    if (call) {
      this.#forget(call);
      call.giveUp();
    }
    if (frame.phase === 'queued') return 'unsent';
    return era === 'modern' ? 'aborted' : 'notify';
  }

  /** Legacy: opens the stream on which the server speaks of its own accord. Servers without one are left in peace. */
  openServerStream(): void {
    if (!this.#closed && this.#agreement?.era !== 'modern') this.#streams.openStandalone();
  }

  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  /** Calls wait until the server has taken `initialized`, on its other connection, or has had time enough to. */
  #holdUntilOpen(): () => void {
    const { clock } = this.#deps;
    const release = this.#lane.hold();
    const cancel = clock.at(clock.nowMs() + initializedMsMax, release);
    return () => {
      cancel();
      release();
    };
  }

  #laneOf(call: PostCall): CallLane {
    return call.isControl ? this.#controlLane : this.#lane;
  }

  #waitOver(call: PostCall): void {
    call.isWaiting = false;
    this.#stalls.waitOver();
  }

  #dispatch(call: PostCall, pool = this.#callPool): void {
    const inSession = call.era === 'legacy' && call.frame.method !== 'initialize';
    if (inSession) call.sessionId = this.#headers.sessionId;
    call.exchange = this.#post(call.frame, pool, call);
    call.token = this.#headers.token;
  }

  #post(frame: OutboundFrame, dispatcher: Dispatcher, sink: ExchangeSink): HttpExchange {
    const headers = this.#headers.post(frame);
    const body = typeof frame.payload === 'string' ? frameText(frame) : frameBytes(frame);
    const request = { server: this.#server, dispatcher, url: this.#url, method: 'POST', headers, body } as const;
    const exchange = new HttpExchange(request, sink);
    exchange.start();
    return exchange;
  }

  #get(lastEventId: string | undefined, sink: ExchangeSink): HttpExchange {
    const headers = this.#headers.stream(lastEventId);
    const request = {
      server: this.#server,
      dispatcher: this.#streamPool,
      url: this.#url,
      headers,
      body: null,
    } as const;
    const exchange = new HttpExchange({ ...request, method: 'GET' }, sink);
    exchange.start();
    return exchange;
  }

  #callHost(decoder: MessageDecoder): CallHost {
    return {
      server: this.#server,
      decode: (bytes, deliver) => decoder.decode(bytes, 0, bytes.length, deliver),
      message: (envelope, frame) => {
        if (!this.#closed) this.#listener?.message(envelope, frame);
      },
      active: (call) => {
        if (call.isWaiting) this.#waitOver(call);
        if (!call.isControl) this.#stalls.active();
      },
      junk: () => {
        this.counters.junk++;
      },
      opened: (call, status, headers) => this.#opened(call, status, headers),
      answered: (call) => {
        this.#forget(call);
        if (!call.streaming) return;
        if (call.frame.method === listenMethod) call.giveUp();
        else this.#laneOf(call).linger(call);
      },
      failed: (call, error) => this.#fail(call, error),
      refused: (call, status, headers, rpcCode) => {
        const inSession = call.sessionId !== undefined;
        const now = this.#deps.clock.date();
        const facts = { server: this.#server, status, headers, inSession, rpcCode, now, sent: call.token };
        const error = statusError(facts);
        const isDoubtful = status === 400 && inSession;
        this.#fail(call, isDoubtful ? new BadRequest(error, call.refusalAnswer) : error);
      },
      broke: (call, error) => this.#broke(call, error),
      released: (call) => this.#released(call),
    };
  }

  #opened(call: PostCall, status: number, headers: ResponseHeaders): HostError | undefined {
    this.#releaseBytes(call);
    if (status < 300) this.#streams.tokenTaken(call.token);
    if (call.frame.method !== 'initialize' || status > 299) return undefined;
    const id = headerText(headers, 'mcp-session-id');
    if (id !== undefined && !isSessionId(id)) {
      return new HostError(
        'protocol_error',
        `server '${this.#server}' gave a session id that cannot stand in a header`,
        {
          server: this.#server,
          reason: 'session_id',
          execution: 'uncertain',
        },
      );
    }
    this.#headers.holdSession(id);
    return undefined;
  }

  #broke(call: PostCall, error: HostError): void {
    const { lastEventId } = call;
    if (call.era === 'modern' || lastEventId === undefined || this.#closed) call.fail(error);
    else this.#streams.resume(call, lastEventId);
  }

  #fail(call: PostCall, error: HostError): void {
    if (!this.#open.has(call.frame)) return;
    this.#forget(call);
    if (!this.#closed) this.#listener?.failed(call.frame, error);
  }

  /** On the standalone stream. */
  #unasked(envelope: Envelope): void {
    if (envelope.kind === 'result' || envelope.kind === 'error') this.#host.junk();
    else if (!this.#closed) this.#listener?.message(envelope, undefined);
  }

  /** The frame is answered, failed or withdrawn. Its exchange may still have to end. */
  #forget(call: PostCall): void {
    this.#open.delete(call.frame);
    if (call.isWaiting) this.#waitOver(call);
    this.#streams.forget(call);
    if (this.#laneOf(call).remove(call)) this.#releaseBytes(call);
  }

  #releaseBytes(call: PostCall): void {
    this.#pendingBytes -= call.pendingBytes;
    call.pendingBytes = 0;
  }

  /** undici holds nothing of this call any more: the next one may go. */
  #released(call: PostCall): void {
    this.#releaseBytes(call);
    call.exchange = undefined;
    if (call.frame.method !== listenMethod) this.#laneOf(call).released(call);
  }

  async #end(): Promise<void> {
    this.#closed = true;
    const reason = 'closed';
    const error = new HostError('transport', `server '${this.#server}': the connection was closed`, {
      server: this.#server,
      reason,
    });
    this.#streams.close();
    this.#stalls.stop();
    this.#lane.close();
    this.#controlLane.close();
    this.#notices.close();
    this.#controlNotices.close();
    for (const call of this.#open.values()) call.giveUp();
    this.#open.clear();
    this.#listener?.closed(error);
    if (this.#headers.sessionId !== undefined) {
      const request = { server: this.#server, dispatcher: this.#streamPool, url: this.#url };
      await endSession({ ...request, headers: this.#headers.end() }, this.#deps.clock);
    }
    const pools = [this.#callPool, this.#controlPool, this.#noticePool, this.#streamPool];
    await Promise.all(pools.map((pool) => pool.destroy()));
  }
}
