/**
 * One POST, GET or DELETE through the dispatch of undici, with a handler object instead of promises and streams. Uses HTTP/1.1
 * with one request per connection at a time, so a lost connection fails only one request.
 * Not here: the meaning of status and body (post-call.ts, get-stream.ts), deadlines (wire/peer.ts, which withdraws late
 * requests).
 * Invariants:
 * - A network failure is `not_executed` only before `onRequestStart`, which undici calls right before the first byte.
 * - The sink gets exactly one of `end` and `failed`, or neither after `abort`. Then it gets `released` exactly once, when undici is done with the request.
 * - Headers and body are sent to the first origin only. With the token of a login, they are sent to the first address only.
 */
import type { Dispatcher } from 'undici';
import { HostError } from '../../kernel/errors.js';
import type { OutboundFrame } from '../../wire/channel.js';
import type { AuthToken } from './auth-token.js';
import type { HeaderList, ResponseHeaders } from './headers.js';
import { networkError } from './http-errors.js';

export interface ExchangeSink {
  /** Called right before the first byte is written. */
  started(): void;
  /** The head of the final response. A returned error ends the exchange. */
  head(status: number, headers: ResponseHeaders): HostError | undefined;
  data(chunk: Buffer): HostError | undefined;
  end(): void;
  failed(error: HostError): void;
  released(): void;
}

/** A message that is sent by one POST, until it is settled. */
export type HttpCall = PostedFrame & ExchangeSink & { giveUp(): void };

export class PostedFrame {
  /** True: the request could not be sent at once, and is still unsent. */
  isWaiting = false;
  /** Bytes of this frame that count against the outbound limit. */
  pendingBytes: number;
  exchange: HttpExchange | undefined;
  token: AuthToken | undefined;

  /** `isControl`: the request uses the control connections. */
  constructor(
    readonly frame: OutboundFrame,
    readonly isControl: boolean,
  ) {
    this.pendingBytes = frame.bytes;
  }
}

export interface ExchangeRequest {
  readonly server: string;
  readonly dispatcher: Dispatcher;
  /** Absolute URL. Redirects are resolved against it. */
  readonly url: URL;
  readonly method: 'POST' | 'GET' | 'DELETE';
  readonly headers: HeaderList;
  readonly body: string | Buffer | null;
  /** False: a redirect is passed to the sink like any other response. Default: true. */
  readonly followsRedirects?: boolean;
  /** True: the token was granted for this URL only. A redirect may add or remove a slash at its end, and nothing else. */
  readonly hasLogin?: boolean;
}

const redirectsMax = 3;
/** Maximum of a redirect body that is read in order to reuse the connection. */
const redirectBodyBytesMax = 64 * 1024;
const ABORTED = new Error('the exchange was given up');

export class HttpExchange implements Dispatcher.DispatchHandler {
  readonly #request: ExchangeRequest;
  readonly #sink: ExchangeSink;
  #url: URL;
  #controller: Dispatcher.DispatchController | undefined;
  /** True: bytes of the request may have been sent, before or after a redirect. */
  #written = false;
  #starting = false;
  #silent = false;
  #over = false;
  #redirects = 0;
  #redirectTo: URL | undefined;
  #redirectBytes = 0;

  constructor(request: ExchangeRequest, sink: ExchangeSink) {
    this.#request = request;
    this.#sink = sink;
    this.#url = request.url;
  }

  start(): void {
    const { dispatcher, method, headers, body } = this.#request;
    const path = this.#url.pathname + this.#url.search;
    this.#starting = true;
    dispatcher.dispatch({ path, method, headers, body }, this);
    this.#starting = false;
  }

  /** After `abort` the sink gets only `released`. An unsent request is never sent. */
  abort(): void {
    if (this.#over) return;
    this.#silent = true;
    this.#controller?.abort(ABORTED);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#silent) return controller.abort(ABORTED);
    // undici may start a request again on a new connection. A request that may have been executed must not be sent twice.
    if (this.#written && this.#redirectTo === undefined) {
      return controller.abort(new Error('the connection was lost'));
    }
    this.#redirectTo = undefined;
    this.#written = true;
    this.#sink.started();
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: ResponseHeaders): void {
    if (status < 200 || this.#silent) return;
    const { followsRedirects = true } = this.#request;
    if (followsRedirects && status >= 300 && status < 400 && status !== 304) return this.#redirected(status, headers);
    const encoding = headers['content-encoding'];
    if (status < 300 && encoding !== undefined && encoding !== '' && encoding !== 'identity') {
      const message = 'sent an encoded response although the request accepts none';
      return this.#fail(this.#protocolError(message, 'content_encoding', status));
    }
    const error = this.#sink.head(status, headers);
    if (error) this.#fail(error);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#silent) return;
    if (this.#redirectTo) {
      this.#redirectBytes += chunk.length;
      if (this.#redirectBytes <= redirectBodyBytesMax) return;
      return this.#fail(this.#protocolError('sent a redirect whose body does not end', 'redirect_body'));
    }
    const error = this.#sink.data(chunk);
    if (error) this.#fail(error);
  }

  onResponseEnd(): void {
    if (this.#redirectTo && !this.#silent) {
      this.#url = this.#redirectTo;
      this.#controller = undefined;
      return this.start();
    }
    this.#over = true;
    try {
      if (!this.#silent) this.#sink.end();
    } finally {
      // If the sink throws, `released` must still run. Otherwise the connection slot would be lost.
      this.#sink.released();
    }
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    if (this.#over) return;
    // A failure is never reported before `start` has returned.
    if (this.#starting) return queueMicrotask(() => this.onResponseError(undefined, error));
    this.#over = true;
    try {
      if (!this.#silent) this.#sink.failed(networkError(error, this.#request.server, this.#written));
    } finally {
      this.#sink.released();
    }
  }

  /** Calls the sink first, because the abort causes `released`. */
  #fail(error: HostError): void {
    this.#silent = true;
    try {
      this.#sink.failed(error);
    } finally {
      this.#controller?.abort(ABORTED);
    }
  }

  #redirected(status: number, headers: ResponseHeaders): void {
    const location = headers.location;
    const { method } = this.#request;
    if (typeof location !== 'string' || !URL.canParse(location, this.#url.href)) {
      return this.#fail(this.#protocolError('redirects without a valid location', 'redirect_location', status));
    }
    const target = new URL(location, this.#url);
    // Only 307 and 308 keep method and body. The other statuses turn a POST into a GET.
    const keeps = status === 307 || status === 308 || (method === 'GET' && (status === 301 || status === 302));
    if (!keeps) return this.#fail(this.#protocolError(`redirects with ${status}`, 'redirect', status));
    if (target.origin !== this.#request.url.origin || target.username !== '' || target.password !== '') {
      const message = 'redirects to another origin; nothing was sent there';
      return this.#fail(this.#protocolError(message, 'redirect_origin', status));
    }
    if (this.#request.hasLogin && placeOf(target) !== placeOf(this.#request.url)) {
      const message = 'redirects to another address; the token of a login is sent only to the address of the login';
      return this.#fail(this.#protocolError(message, 'redirect_login', status));
    }
    if (++this.#redirects > redirectsMax) {
      return this.#fail(this.#protocolError(`redirects more than ${redirectsMax} times`, 'redirect_loop', status));
    }
    this.#redirectTo = target;
    this.#redirectBytes = 0;
  }

  #protocolError(message: string, reason: string, httpStatus?: number): HostError {
    return new HostError('protocol_error', `server '${this.#request.server}' ${message}`, {
      server: this.#request.server,
      reason,
      execution: 'uncertain',
      ...(httpStatus === undefined ? {} : { httpStatus }),
      ...(reason.startsWith('redirect')
        ? { hint: `${redirectHint}${reason === 'redirect_login' ? ', then log in again' : ''}` }
        : {}),
    });
  }
}

const redirectHint = 'write the final URL of the server in its configuration';

/** Many frameworks redirect from `/mcp` to `/mcp/`. */
const placeOf = ({ pathname, search }: URL): string => pathname.replace(/\/$/, '') + search;
