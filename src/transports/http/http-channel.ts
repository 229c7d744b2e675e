/**
 * Base class of both HTTP transports: connection pools, request headers, bounds, and the table of open requests.
 * Not here: reading a response (post-call.ts), order of frames (call-queue.ts), deadlines (wire/peer.ts).
 * Invariants:
 * - Calls, control traffic, one-way messages and event streams have separate connections and bounds. A response that the server
 *   waits for never queues behind calls, and a session can be opened while any number of calls run.
 * - A waiting frame has not been passed to undici. Withdrawing it leaves no trace.
 * - The listener gets no report after `closed`.
 */
import type { Dispatcher } from 'undici';
import { ByteBudget } from '../../kernel/byte-budget.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import {
  type Agreement,
  type Channel,
  type ChannelListener,
  frameBytes,
  frameText,
  type OutboundFrame,
  type Withdrawal,
} from '../../wire/channel.js';
import { IdTable } from '../../wire/id-table.js';
import { isSessionRequest, listenMethod, NOTIFICATION } from '../../wire/methods.js';
import { notOpen, overloaded } from '../../wire/wire-errors.js';
import type { AuthToken } from './auth-token.js';
import {
  CallQueue,
  ConnectionSlots,
  newHttpCounters,
  OneWayQueue,
  oneWayConnections,
  oneWayTimeoutMs,
} from './call-queue.js';
import { checkFacts, configuredHeaders, type HeaderList, RequestHeaders } from './headers.js';
import { type ExchangeSink, type HttpCall, HttpExchange } from './http-exchange.js';
import { connectionsDefault, type HttpDeps, type HttpSpec, openPool, specUrl } from './http-pool.js';

/**
 * Messages that open, check or unblock a session have separate connections. Otherwise the message that unblocks a session could
 * queue behind the blocked calls.
 */
const isControl = ({ method }: OutboundFrame): boolean =>
  isSessionRequest(method) || method === NOTIFICATION.cancelled || method === NOTIFICATION.initialized;
const controlConnections = 2;
/** Maximum time for which a control notification may occupy a connection that an `initialize` needs. */
const controlNotificationMsMax = 2_000;

export abstract class HttpChannel<Call extends HttpCall> implements Channel {
  abstract readonly kind: Channel['kind'];
  readonly counters = newHttpCounters();
  readonly server: string;
  readonly deps: HttpDeps;
  protected readonly url: URL;
  /** URL for POSTs, once it is known. */
  protected endpoint: URL | undefined;
  protected readonly headers: RequestHeaders;
  protected readonly streamPool: Dispatcher;
  protected readonly calls: CallQueue<Call>;
  protected listener: ChannelListener | undefined;
  protected closedBy: HostError | undefined;
  /** Requests whose outcome has not been reported. */
  readonly #open = new IdTable<Call>();
  readonly #callPool: Dispatcher;
  readonly #controlPool: Dispatcher;
  readonly #oneWayPool: Dispatcher;
  readonly #controlCalls: CallQueue<Call>;
  readonly #oneWay: OneWayQueue;
  readonly #controlOneWay: OneWayQueue;
  readonly #stalls: StallWatch;
  readonly #outbound = new ByteBudget(LIMITS.outboundBytes);
  #closing: Promise<void> | undefined;

  /** Throws `invalid_spec` naming the field. */
  constructor(spec: HttpSpec, deps: HttpDeps) {
    this.server = spec.server;
    this.url = specUrl(spec);
    this.deps = deps;
    this.headers = new RequestHeaders(configuredHeaders(spec.server, spec.headers), spec.tokens);
    const connections = spec.connections ?? connectionsDefault;
    this.#callPool = openPool(spec, deps, connections);
    this.#controlPool = openPool(spec, deps, controlConnections);
    this.#oneWayPool = openPool(spec, deps, oneWayConnections);
    // One stream for each call, the standalone stream, and one more: a stream is opened before its predecessor is closed.
    this.streamPool = openPool(spec, deps, connections + 2);
    this.calls = new CallQueue(new ConnectionSlots(connections), (call) => this.dispatch(call, this.#callPool));
    const control = new ConnectionSlots(controlConnections);
    // Subscribes first, so that a waiting request gets a freed control connection before a waiting notification.
    this.#controlCalls = new CallQueue(control, (call) => this.dispatch(call, this.#controlPool));
    this.#controlOneWay = new OneWayQueue(this, this.#controlPool, control, controlNotificationMsMax);
    const oneWay = new ConnectionSlots(oneWayConnections);
    this.#oneWay = new OneWayQueue(this, this.#oneWayPool, oneWay, oneWayTimeoutMs);
    this.#stalls = new StallWatch(deps.clock, (activity) => this.listener?.stalled?.(activity));
  }

  protected abstract newCall(frame: OutboundFrame, isControl: boolean): Call;

  /** Called first when the channel ends. */
  protected abstract closeStreams(error: HostError): void;

  start(listener: ChannelListener): void {
    this.listener = listener;
  }

  adopt(agreement: Agreement): void {
    this.headers.adopt(agreement);
  }

  send(frame: OutboundFrame): HostError | undefined {
    if (this.closedBy || !this.listener || !this.endpoint) return notOpen(this.server);
    const refused = checkFacts(this.server, frame.http);
    if (refused) return refused;
    if (frame.kind !== 'request') {
      this.sendOneWay(frame);
      return undefined;
    }
    if (!this.#outbound.take(frame.bytes)) return overloaded(this.server, this.#outbound.used);
    const call = this.newCall(frame, isControl(frame));
    this.#open.set(frame.id as number, call);
    // A listen stream stays open, so it must not use a connection of short requests.
    if (frame.method === listenMethod) this.dispatch(call, this.streamPool);
    else this.#queueOf(call).add(call);
    if (frame.phase === 'queued' && !call.isControl) {
      call.isWaiting = true;
      this.#stalls.waiting();
    }
    return undefined;
  }

  withdraw(frame: OutboundFrame): Withdrawal {
    const call = this.callOf(frame);
    if (call) {
      this.forget(call);
      call.giveUp();
    }
    return frame.phase === 'queued' ? 'unsent' : 'notify';
  }

  close(): Promise<void> {
    this.end(
      new HostError('transport', `server '${this.server}': the connection was closed`, {
        server: this.server,
        reason: 'closed',
      }),
    );
    this.#closing ??= this.endSession().then(() => this.#destroyPools());
    return this.#closing;
  }

  post(frame: OutboundFrame, pool: Dispatcher, sink: ExchangeSink): HttpExchange {
    const body = typeof frame.payload === 'string' ? frameText(frame) : frameBytes(frame);
    return this.exchange('POST', pool, this.headers.post(frame), body, sink, this.endpoint);
  }

  get(lastEventId: string | undefined, sink: ExchangeSink): HttpExchange {
    return this.exchange('GET', this.streamPool, this.headers.stream(lastEventId), null, sink);
  }

  get token(): AuthToken | undefined {
    return this.headers.token;
  }

  // --- reports of calls

  active(call: Call): void {
    if (call.isWaiting) this.#waitOver(call);
    if (!call.isControl) this.#stalls.active();
  }

  failed(call: Call, error: HostError): void {
    if (!this.callOf(call.frame)) return;
    this.forget(call);
    if (!this.closedBy) this.listener?.failed(call.frame, error);
  }

  /** undici is done with this call, so the next one may be sent. */
  released(call: Call): void {
    this.releaseBytes(call);
    call.exchange = undefined;
    if (call.frame.method !== listenMethod) this.#queueOf(call).released(call);
  }

  // --- for the transports

  /** Undefined if the outcome of the request was reported. */
  protected callOf(frame: OutboundFrame): Call | undefined {
    const call = frame.id === undefined ? undefined : this.#open.get(frame.id);
    return call?.frame === frame ? call : undefined;
  }

  protected dispatch(call: Call, pool: Dispatcher): void {
    call.exchange = this.post(call.frame, pool, call);
    call.token = this.headers.token;
  }

  /** `done` is called when the message is accepted, dropped or lost. */
  protected sendOneWay(frame: OutboundFrame, done?: () => void): void {
    (isControl(frame) ? this.#controlOneWay : this.#oneWay).add(frame, done);
  }

  protected exchange(
    method: 'POST' | 'GET' | 'DELETE',
    dispatcher: Dispatcher,
    headers: HeaderList,
    body: string | Buffer | null,
    sink: ExchangeSink,
    url = this.url,
  ): HttpExchange {
    const hasLogin = this.headers.token?.grant !== undefined;
    const exchange = new HttpExchange({ server: this.server, dispatcher, url, method, headers, body, hasLogin }, sink);
    exchange.start();
    return exchange;
  }

  /** The server has not closed the response of this answered call. Its connection is closed first when one is needed. */
  protected linger(call: Call): void {
    if (call.frame.method === listenMethod) call.giveUp();
    else this.#queueOf(call).linger(call);
  }

  /** The call is answered, failed or withdrawn. Its exchange may still be running. */
  protected forget(call: Call): void {
    this.#open.delete(call.frame.id as number);
    if (call.isWaiting) this.#waitOver(call);
    if (this.#queueOf(call).remove(call)) this.releaseBytes(call);
  }

  protected releaseBytes(call: Call): void {
    this.#outbound.release(call.pendingBytes);
    call.pendingBytes = 0;
  }

  protected end(error: HostError): void {
    if (this.closedBy) return;
    this.closedBy = error;
    this.closeStreams(error);
    this.#stalls.stop();
    this.calls.close();
    this.#controlCalls.close();
    this.#oneWay.close();
    this.#controlOneWay.close();
    for (const call of this.#open.values()) {
      this.#open.delete(call.frame.id as number);
      call.giveUp();
    }
    this.listener?.closed(error);
  }

  /** Called after the channel has ended, before its connections are closed. */
  protected async endSession(): Promise<void> {}

  // --- private

  #queueOf(call: Call): CallQueue<Call> {
    return call.isControl ? this.#controlCalls : this.calls;
  }

  #waitOver(call: Call): void {
    call.isWaiting = false;
    this.#stalls.waitOver();
  }

  async #destroyPools(): Promise<void> {
    const pools = [this.#callPool, this.#controlPool, this.#oneWayPool, this.streamPool];
    await Promise.all(pools.map((pool) => pool.destroy()));
  }
}

const tickMs = 1_000;
const stalledTicks = 10;

/**
 * Detects a stalled channel: some request waited to be sent for 10 s in total, and no byte was written or received.
 * Waits of several requests add up, because a caller may give up before 10 s. The next byte resets the count.
 * Not here: the reaction, and whether the server is still working on a request (session/session.ts).
 * Invariants: no timer runs while no request waits. Control traffic is not activity, because an answered ping frees no request.
 */
export class StallWatch {
  readonly #clock: Clock;
  /** The argument is a number that changes when a byte is written or received. */
  readonly #stalled: (activity: number) => void;
  #unsent = 0;
  #activity = 0;
  #seenActivity = 0;
  #quietTicks = 0;
  #cancel: Cancel | undefined;

  constructor(clock: Clock, stalled: (activity: number) => void) {
    this.#clock = clock;
    this.#stalled = stalled;
  }

  active(): void {
    this.#activity++;
  }

  waiting(): void {
    this.#unsent++;
    if (!this.#cancel) this.#arm();
  }

  /** A waiting request was sent, failed or was given up. */
  waitOver(): void {
    this.#unsent--;
    if (this.#unsent === 0) this.stop();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #arm(): void {
    this.#cancel = this.#clock.at(this.#clock.nowMs() + tickMs, () => this.#tick());
  }

  #tick(): void {
    this.#arm();
    if (this.#activity !== this.#seenActivity) {
      this.#seenActivity = this.#activity;
      this.#quietTicks = 0;
    } else if (++this.#quietTicks === stalledTicks) {
      this.#quietTicks = 0;
      this.#stalled(this.#activity);
    }
  }
}
