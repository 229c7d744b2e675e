/**
 * The HTTP+SSE transport of protocol 2024-11-05: one GET stream brings everything, including the answers to what is
 * POSTed to the address that the stream names first. Kept for servers that know nothing newer.
 * Not here: reconnecting. The session lives in the stream; when the stream ends, so does the channel.
 *
 * Invariants: POSTs go only to the origin the operator configured, whatever address the server names. What the server
 * says before anyone listens is bounded, and dropped before it has named that address.
 */

import type { Dispatcher } from 'undici';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { HostError, type HostErrorOptions } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import {
  type Agreement,
  type Channel,
  type ChannelListener,
  frameBytes,
  type OutboundFrame,
  type Withdrawal,
} from '../../wire/channel.js';
import { MessageDecoder } from '../../wire/message-decoder.js';
import { oversizedEdgeBytes, oversizedHead } from '../../wire/oversized-answer.js';
import { notOpen, overloaded } from '../../wire/wire-errors.js';
import type { AuthToken } from './auth-token.js';
import { configuredHeaders, RequestHeaders } from './headers.js';
import { type ExchangeSink, HttpExchange, type ResponseHeaders } from './http-exchange.js';
import { connectionsDefault, type HttpDeps, type HttpSpec, openPool, specUrl } from './http-pool.js';
import { SseStream } from './http-sse-stream.js';
import { NoticeLane, newHttpCounters, noticeConnectionsMax } from './notice-lane.js';
import { OneWayPost } from './one-way-post.js';
import type { SseEvent } from './sse-parser.js';
import { statusError } from './status-error.js';

export interface OpenLimits {
  /** On the clock of the dependencies. */
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
}

const openTimeoutMsDefault = 30_000;
/** Messages that come after the address and before anyone listens. */
const earlyEventsMax = 100;
const earlyBytesMax = 1024 * 1024;

/** Resolves when the server has named its address; rejects with HostError when it does not, or when a limit is reached. */
export function openHttpSse(
  spec: HttpSpec,
  deps: HttpDeps,
  limits: OpenLimits = { deadlineAtMs: deps.clock.nowMs() + openTimeoutMsDefault },
): Promise<Channel> {
  const { clock } = deps;
  const { server } = spec;
  const { deadlineAtMs, signal } = limits;
  return new Promise((resolve, reject) => {
    const channel = new HttpSseChannel(spec, deps, (error) => {
      cancelDeadline();
      signal?.removeEventListener('abort', onAbort);
      if (!error) return resolve(channel);
      channel.close().then(() => reject(error), reject);
    });
    const onAbort = () => channel.giveUpOpening(cancelledOpening(server));
    const onDeadline = () => channel.giveUpOpening(lateEndpoint(server));
    const cancelDeadline = clock.at(deadlineAtMs, onDeadline);
    signal?.addEventListener('abort', onAbort);
    if (signal?.aborted) onAbort();
    else if (deadlineAtMs <= clock.nowMs()) onDeadline();
    else channel.open();
  });
}

const lateEndpoint = (server: string): HostError =>
  new HostError('timeout', `server '${server}' did not name the address for its messages in time`, {
    server,
    reason: 'endpoint',
    execution: 'not_executed',
    hint: 'check that the URL is that of its event stream; if the server is only slow, raise timeouts.start',
  });

const cancelledOpening = (server: string): HostError =>
  new HostError('cancelled', `server '${server}': the caller gave up before the connection was open`, {
    server,
    execution: 'not_executed',
  });

class HttpSseChannel implements Channel {
  readonly kind = 'http-sse';
  readonly counters = newHttpCounters();
  readonly #spec: HttpSpec;
  readonly #url: URL;
  readonly #deps: HttpDeps;
  readonly #streamPool: Dispatcher;
  readonly #callPool: Dispatcher;
  readonly #noticePool: Dispatcher;
  readonly #notices: NoticeLane;
  readonly #headers: RequestHeaders;
  readonly #decoder = new MessageDecoder(this.counters);
  /** Called once: undefined when the address is known. */
  #opened: ((error: HostError | undefined) => void) | undefined;
  #exchange: HttpExchange | undefined;
  #endpoint: URL | undefined;
  #listener: ChannelListener | undefined;
  #early: Buffer[] = [];
  #earlyBytes = 0;
  #over: HostError | undefined;
  #closing: Promise<void> | undefined;
  /** Requests whose POST is not over. */
  readonly #posts = new Map<OutboundFrame, OneWayPost>();
  #pendingBytes = 0;

  constructor(spec: HttpSpec, deps: HttpDeps, opened: (error: HostError | undefined) => void) {
    this.#spec = spec;
    this.#url = specUrl(spec);
    this.#deps = deps;
    this.#opened = opened;
    this.#headers = new RequestHeaders(configuredHeaders(spec.server, spec.headers), spec.tokens);
    this.#streamPool = openPool(spec, deps, 1);
    this.#callPool = openPool(spec, deps, spec.connections ?? connectionsDefault);
    this.#noticePool = openPool(spec, deps, noticeConnectionsMax);
    this.#notices = new NoticeLane({
      clock: deps.clock,
      counters: this.counters,
      post: (frame, sink) => this.#post(frame, this.#noticePool, sink),
    });
  }

  open(): void {
    const request = { server: this.#spec.server, dispatcher: this.#streamPool, url: this.#url, body: null } as const;
    const headers = this.#headers.stream(undefined);
    const owner = {
      event: (event: SseEvent) => this.#event(event),
      tooLarge: (head: Buffer, error: HostError) => this.#tooLarge(head, error),
      over: (error: HostError) => this.#end(error),
    };
    const sink = new SseStream(this.#spec.server, this.#deps, owner, this.#headers.token);
    this.#exchange = new HttpExchange({ ...request, method: 'GET', headers }, sink);
    this.#exchange.start();
  }

  giveUpOpening(error: HostError): void {
    if (this.#opened) this.#end(error);
  }

  start(listener: ChannelListener): void {
    this.#listener = listener;
    const early = this.#early;
    this.#early = [];
    for (const data of early) this.#receive(data);
    if (this.#over) listener.closed(this.#over);
  }

  send(frame: OutboundFrame): HostError | undefined {
    const { server } = this.#spec;
    if (this.#over || !this.#endpoint || !this.#listener) return notOpen(server);
    if (frame.kind !== 'request') {
      this.#notices.add(frame);
      return undefined;
    }
    if (this.#pendingBytes + frame.bytes > LIMITS.outboundBytes) return overloaded(server, this.#pendingBytes);
    this.#pendingBytes += frame.bytes;
    const post = new OneWayPost(frame, {
      refused: (status, headers) => this.#refused(frame, status, headers, sent),
      failed: (error) => this.#failed(frame, error),
      released: () => {
        this.#pendingBytes -= frame.bytes;
        this.#posts.delete(frame);
      },
    });
    this.#posts.set(frame, post);
    post.exchange = this.#post(frame, this.#callPool, post);
    const sent = this.#headers.token;
    return undefined;
  }

  withdraw(frame: OutboundFrame): Withdrawal {
    // Also when it is out: a POST that nobody waits for must not hold its connection.
    this.#posts.get(frame)?.giveUp();
    return frame.phase === 'queued' ? 'unsent' : 'notify';
  }

  adopt(agreement: Agreement): void {
    this.#headers.adopt(agreement);
  }

  close(): Promise<void> {
    this.#end(this.#error('transport', 'the connection was closed', { reason: 'closed' }));
    const pools = [this.#streamPool, this.#callPool, this.#noticePool];
    this.#closing ??= Promise.all(pools.map((pool) => pool.destroy())).then(() => {});
    return this.#closing;
  }

  #post(frame: OutboundFrame, dispatcher: Dispatcher, sink: ExchangeSink): HttpExchange {
    const request = {
      server: this.#spec.server,
      dispatcher,
      url: this.#endpoint as URL,
      method: 'POST',
    } as const;
    const exchange = new HttpExchange(
      { ...request, headers: this.#headers.post(frame), body: frameBytes(frame) },
      sink,
    );
    exchange.start();
    return exchange;
  }

  #event(event: SseEvent): void {
    if (this.#over) return;
    if (event.event === 'endpoint') return this.#named(event.data.toString('utf8'));
    if (event.data.length === 0 || (event.event !== undefined && event.event !== 'message')) return;
    if (this.#listener) this.#receive(event.data);
    else this.#keepEarly(event.data);
  }

  /** Before its address a server has nothing to say: nobody could answer it. */
  #keepEarly(data: Buffer): void {
    const isRoom = this.#early.length < earlyEventsMax && this.#earlyBytes + data.length <= earlyBytesMax;
    if (!this.#endpoint || !isRoom) {
      this.counters.junk++;
      return;
    }
    this.#earlyBytes += data.length;
    // A copy: the data may be a small view of a large chunk.
    this.#early.push(Buffer.from(data));
  }

  #named(address: string): void {
    if (this.#endpoint) return;
    const url = URL.canParse(address, this.#url.href) ? new URL(address, this.#url) : undefined;
    if (!url || url.origin !== this.#url.origin || url.username !== '' || url.password !== '') {
      const message = 'it names an address at another origin for its messages';
      return this.#end(
        this.#error('protocol_error', message, { reason: 'endpoint_origin', execution: 'not_executed' }),
      );
    }
    this.#endpoint = url;
    this.#opened?.(undefined);
    this.#opened = undefined;
  }

  #receive(data: Buffer): void {
    this.#decoder.decode(data, 0, data.length, (envelope) => {
      if (!this.#over) this.#listener?.message(envelope, undefined);
    });
  }

  /** The stream carries the answers of all requests, and ends with one that is too large. */
  #tooLarge(head: Buffer, error: HostError): void {
    const id = oversizedHead(head.subarray(0, oversizedEdgeBytes));
    if (!this.#over && typeof id === 'number') this.#listener?.tooLarge?.(id, error);
  }

  #refused(frame: OutboundFrame, status: number, headers: ResponseHeaders, sent: AuthToken | undefined): void {
    const facts = { server: this.#spec.server, status, headers, inSession: false, rpcCode: undefined, sent };
    this.#failed(frame, statusError({ ...facts, now: this.#deps.clock.date() }));
  }

  #failed(frame: OutboundFrame, error: HostError): void {
    if (!this.#over) this.#listener?.failed(frame, error);
  }

  /** Once, for whatever reason; nothing is reported after it. */
  #end(error: HostError): void {
    if (this.#over) return;
    this.#over = error;
    this.#exchange?.abort();
    this.#notices.close();
    for (const post of this.#posts.values()) post.giveUp();
    this.#opened?.(error);
    this.#opened = undefined;
    this.#listener?.closed(error);
  }

  #error(code: 'transport' | 'overloaded' | 'protocol_error', message: string, details: HostErrorOptions): HostError {
    const { server } = this.#spec;
    return new HostError(code, `server '${server}': ${message}`, { server, ...details });
  }
}
