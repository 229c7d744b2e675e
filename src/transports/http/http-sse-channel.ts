/**
 * The HTTP+SSE transport of protocol 2024-11-05, for servers that support nothing newer. One GET stream carries every message
 * of the server, including answers. Requests are POSTed to the endpoint that the stream announces first.
 * Not here: connections and bounds (http-channel.ts). The channel never reconnects, because the session ends with the stream.
 * Invariants: POSTs are sent only to the configured origin. Messages before `start` are bounded; messages before the endpoint
 * are dropped.
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { HostError } from '../../kernel/errors.js';
import type { Channel, ChannelListener, OutboundFrame } from '../../wire/channel.js';
import { MessageDecoder } from '../../wire/envelope.js';
import { oversizedEdgeBytes, oversizedHead } from '../../wire/line-reader.js';
import { OneWayPost } from './call-queue.js';
import { GetStream } from './get-stream.js';
import type { ResponseHeaders } from './headers.js';
import { HttpChannel } from './http-channel.js';
import { BadRequest, refusesProtocol, statusError } from './http-errors.js';
import type { HttpDeps, HttpSpec } from './http-pool.js';
import type { SseEvent } from './sse-parser.js';

export interface OpenLimits {
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
}

const openTimeoutMsDefault = 30_000;
/** Maximum of messages after the endpoint and before `start`. */
const earlyEventsMax = 100;
const earlyBytesMax = 1024 * 1024;

/** Resolves when the server has announced its endpoint. Rejects with HostError if it does not, or if a limit is reached. */
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
    else channel.openStream();
  });
}

const lateEndpoint = (server: string): HostError =>
  new HostError('timeout', `server '${server}' did not name the endpoint for its messages in time`, {
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

const foreignEndpoint = (server: string): HostError =>
  new HostError('protocol_error', `server '${server}': the endpoint for its messages is not at the configured origin`, {
    server,
    reason: 'endpoint_origin',
    execution: 'not_executed',
  });

class HttpSseChannel extends HttpChannel<OneWayPost> {
  readonly kind = 'http-sse';
  readonly #decoder = new MessageDecoder(this.counters);
  readonly #stream: GetStream;
  /** Called once. The argument is undefined if the endpoint was announced in time. */
  #onOpened: ((error: HostError | undefined) => void) | undefined;
  #early: Buffer[] = [];
  #earlyBytes = 0;

  constructor(spec: HttpSpec, deps: HttpDeps, onOpened: (error: HostError | undefined) => void) {
    super(spec, deps);
    this.#onOpened = onOpened;
    this.#stream = new GetStream(this, {
      retries: 'none',
      onEvent: (event) => this.#event(event),
      onTooLarge: (head, error) => this.#tooLarge(head, error),
      onGiveUp: (error) => this.end(error),
    });
  }

  openStream(): void {
    this.#stream.open();
  }

  giveUpOpening(error: HostError): void {
    if (this.#onOpened) this.end(error);
  }

  override start(listener: ChannelListener): void {
    super.start(listener);
    const early = this.#early;
    this.#early = [];
    for (const data of early) this.#receive(data);
    if (this.closedBy) listener.closed(this.closedBy);
  }

  // --- reports of POSTs

  refused(post: OneWayPost, status: number, headers: ResponseHeaders): void {
    const { server, deps } = this;
    const facts = { server, status, headers, inSession: false, rpcCode: undefined, sent: post.token };
    const error = statusError({ ...facts, now: deps.clock.date() });
    // The endpoint is the session: the server may no longer know it, although the stream is open.
    this.failed(post, refusesProtocol(status) ? new BadRequest(error, undefined) : error);
  }

  override released(post: OneWayPost): void {
    super.released(post);
    this.forget(post);
  }

  protected newCall(frame: OutboundFrame, isControl: boolean): OneWayPost {
    return new OneWayPost(this, frame, isControl);
  }

  protected closeStreams(error: HostError): void {
    this.#stream.stop();
    this.#onOpened?.(error);
    this.#onOpened = undefined;
  }

  // --- events of the stream

  #event(event: SseEvent): void {
    if (this.closedBy) return;
    if (event.event === 'endpoint') return this.#setEndpoint(event.data.toString('utf8'));
    if (event.data.length === 0 || (event.event !== undefined && event.event !== 'message')) return;
    if (this.listener) this.#receive(event.data);
    else this.#storeEarly(event.data);
  }

  /** A message before the endpoint is dropped, because it could not be answered. */
  #storeEarly(data: Buffer): void {
    const isRoom = this.#early.length < earlyEventsMax && this.#earlyBytes + data.length <= earlyBytesMax;
    if (!this.endpoint || !isRoom) {
      this.counters.junk++;
      return;
    }
    this.#earlyBytes += data.length;
    // A copy, because `data` may be a small view of a large chunk.
    this.#early.push(Buffer.from(data));
  }

  #setEndpoint(address: string): void {
    if (this.endpoint) return;
    const url = URL.canParse(address, this.url.href) ? new URL(address, this.url) : undefined;
    if (!url || url.origin !== this.url.origin || url.username !== '' || url.password !== '')
      return this.end(foreignEndpoint(this.server));
    this.endpoint = url;
    this.#onOpened?.(undefined);
    this.#onOpened = undefined;
  }

  #receive(data: Buffer): void {
    this.#decoder.decode(data, 0, data.length, (envelope) => {
      if (!this.closedBy) this.listener?.message(envelope, undefined);
    });
  }

  /** An oversized answer ends the stream, and with it all other requests. */
  #tooLarge(head: Buffer, error: HostError): void {
    const id = oversizedHead(head.subarray(0, oversizedEdgeBytes));
    if (!this.closedBy && typeof id === 'number') this.listener?.tooLarge?.(id, error);
  }
}
