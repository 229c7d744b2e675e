/**
 * An event stream fetched with GET. A broken stream is fetched again from its last event (`Last-Event-ID`).
 * Three uses: the stream of HTTP+SSE, fetched once; the standalone stream of a session, reopened without limit; the rest of the
 * answer to one call, given up after `failuresMax` failures.
 * Invariant: an id counts as seen only after its event was delivered, so a broken connection loses and repeats no event.
 */
import { backoffMs } from '../../kernel/backoff.js';
import type { Cancel } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import type { Random } from '../../kernel/random.js';
import { inboundTooLarge } from '../../wire/wire-errors.js';
import { type AuthToken, TokenRefused, tokenHash } from './auth-token.js';
import { isEventStream, type ResponseHeaders } from './headers.js';
import { statusError } from './http-errors.js';
import type { ExchangeSink, HttpExchange } from './http-exchange.js';
import type { HttpDeps } from './http-pool.js';
import type { PostCall } from './post-call.js';
import { type SseEvent, SseParser } from './sse-parser.js';

/** A stream that stayed open for this long was healthy. Then the next failure counts as the first. */
const healthyMs = 5_000;
const failuresMax = 5;
/** Upper bound of the delay after failures, and after standalone streams without data. */
const delayMsMax = 30_000;
/** Upper bound of the delay while a caller waits for the rest of an answer. */
const pollMsMax = 1_000;
/** Delay before a refused standalone stream is requested again. It doubles with each refusal. */
const refusedMs = { first: 30_000, max: 300_000 } as const;
/** Lower bound between two GETs. A server may end the standalone stream after every event and send `retry: 1`. */
const standaloneIntervalMs = 1_000;

interface StreamSource {
  readonly server: string;
  readonly deps: HttpDeps;
  get(lastEventId: string | undefined, sink: ExchangeSink): HttpExchange;
  readonly token: AuthToken | undefined;
}

interface GetStreamOptions {
  readonly retries: 'none' | 'some' | 'endless';
  readonly lastEventId?: string | undefined;
  readonly retryMs?: number | undefined;
  readonly onEvent: (event: SseEvent) => void;
  /** Reports a message above the size limit, with its first bytes. */
  readonly onTooLarge?: (head: Buffer, error: HostError) => void;
  /** The stream has ended and is not reopened. Not called after `stop`. */
  readonly onGiveUp: (error: HostError) => void;
}

const methodNotAllowed = 405;
/** Temporary refusals. 409: the server still has the broken stream open. Other 4xx statuses are final. */
const temporaryStatuses = [408, 409, 425, 429];

export class GetStream implements ExchangeSink {
  readonly #source: StreamSource;
  readonly #options: GetStreamOptions;
  #lastEventId: string | undefined;
  #retryMs: number | undefined;
  #exchange: HttpExchange | undefined;
  #token: AuthToken | undefined;
  #parser: SseParser | undefined;
  #cancelWait: Cancel = () => {};
  #requestedAtMs = Number.NEGATIVE_INFINITY;
  #failures = 0;
  /** Number of consecutive streams that ended cleanly without data. */
  #emptyStreams = 0;
  #openedAtMs: number | undefined;
  #hasData = false;
  #fatal: HostError | undefined;
  #tooLarge: HostError | undefined;
  #isStopped = false;

  constructor(source: StreamSource, options: GetStreamOptions) {
    this.#source = source;
    this.#options = options;
    this.#lastEventId = options.lastEventId;
    this.#retryMs = options.retryMs;
  }

  open(): void {
    if (this.#isStopped) return;
    this.#parser = this.#openedAtMs = this.#tooLarge = undefined;
    this.#hasData = false;
    this.#requestedAtMs = this.#source.deps.clock.nowMs();
    this.#exchange = this.#source.get(this.#lastEventId, this);
    this.#token = this.#source.token;
  }

  /** Opens the stream after the `retry` delay of the server, or after a longer delay following failures. */
  openLater(): void {
    const { clock, random } = this.#source.deps;
    const isEndless = this.#options.retries === 'endless';
    const delayMs =
      this.#failures > 0 || isEndless
        ? reconnectDelayMs(this.#retryMs, this.#failures + this.#emptyStreams, delayMsMax, random)
        : reconnectDelayMs(this.#retryMs, this.#emptyStreams, pollMsMax, random);
    const earliestMs = isEndless ? this.#requestedAtMs + standaloneIntervalMs : 0;
    this.#cancelWait = clock.at(Math.max(clock.nowMs() + delayMs, earliestMs), () => this.open());
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelWait();
    this.#exchange?.abort();
  }

  started(): void {}
  released(): void {}

  head(status: number, headers: ResponseHeaders): HostError | undefined {
    const { server, deps } = this.#source;
    if (status === 200 && isEventStream(headers)) {
      this.#openedAtMs = deps.clock.nowMs();
      this.#parser = new SseParser(
        LIMITS.frameBytes,
        (event) => this.#event(event),
        (bytes, head) => this.#eventTooLarge(bytes, head),
      );
      return undefined;
    }
    const inSession = this.#options.retries !== 'none';
    const now = deps.clock.date();
    const error =
      status === 200
        ? notEventStream(server)
        : statusError({ server, status, headers, inSession, rpcCode: undefined, now, sent: this.#token });
    if (status < 500 && !temporaryStatuses.includes(status)) this.#fatal = error;
    return error;
  }

  data(chunk: Buffer): HostError | undefined {
    this.#parser?.push(chunk);
    return this.#tooLarge;
  }

  end(): void {
    this.#parser?.end();
    const { server } = this.#source;
    const details = { server, reason: 'stream_ended', execution: 'uncertain' } as const;
    this.#reopen(new HostError('transport', `server '${server}' ended its event stream`, details), true);
  }

  failed(error: HostError): void {
    this.#reopen(error, false);
  }

  #reopen(error: HostError, isClean: boolean): void {
    if (this.#isStopped) return;
    this.#exchange = undefined;
    const { retries } = this.#options;
    if (retries === 'none') return this.#giveUp(error);
    if (this.#fatal) return this.#giveUp(this.#fatal);
    const openMs = this.#openedAtMs === undefined ? 0 : this.#source.deps.clock.nowMs() - this.#openedAtMs;
    if ((isClean && this.#hasData) || openMs >= healthyMs) this.#failures = this.#emptyStreams = 0;
    else if (isClean) {
      // A server may end a stream at any time and expect the next GET. This is polling, not a failure.
      this.#failures = 0;
      this.#emptyStreams++;
    } else this.#failures++;
    if (!isClean && retries === 'some' && this.#failures >= failuresMax) return this.#giveUp(error);
    this.openLater();
  }

  #giveUp(error: HostError): void {
    this.#isStopped = true;
    this.#options.onGiveUp(error);
  }

  #event(event: SseEvent): void {
    if (this.#isStopped) return;
    if (event.retryMs !== undefined) this.#retryMs = event.retryMs;
    if (event.data.length > 0) this.#hasData = true;
    this.#options.onEvent(event);
    if (event.id !== undefined) this.#lastEventId = event.id === '' ? undefined : event.id;
  }

  #eventTooLarge(bytes: number, head: Buffer): void {
    this.#tooLarge = inboundTooLarge(this.#source.server, bytes);
    if (this.#options.retries === 'some') this.#fatal = this.#tooLarge;
    // With the last id, the server would send the same event again.
    this.#lastEventId = undefined;
    if (!this.#isStopped) this.#options.onTooLarge?.(head, this.#tooLarge);
  }
}

interface StreamOwner extends StreamSource {
  receiveStandalone(data: Buffer): void;
  /** The server refused the standalone stream with 404 or 400. It has lost the session, or has no such stream. */
  sessionMaybeLost(): void;
}

/**
 * The GET streams of one session: the standalone stream for messages without a request, and one stream per call whose POST
 * stream broke. Messages on a resumed stream are delivered only to the call of that stream.
 */
export class ResumableStreams {
  readonly #owner: StreamOwner;
  #standalone: GetStream | undefined;
  /** Refusals of the standalone stream in this session. */
  #refusals = 0;
  #cancelReopen: Cancel = () => {};
  /** Hash of the token with which the standalone stream was refused. Another token is worth an attempt at once. */
  #refusedHash: string | undefined;
  readonly #resumed = new Map<PostCall, GetStream>();

  constructor(owner: StreamOwner) {
    this.#owner = owner;
  }

  /** Does not retry if the server says that it has no such stream. */
  openStandalone(): void {
    if (this.#standalone) return;
    this.#cancelReopen();
    this.#refusedHash = undefined;
    this.#standalone = new GetStream(this.#owner, {
      retries: 'endless',
      onEvent: ({ data }) => {
        this.#refusals = 0;
        if (data.length > 0) this.#owner.receiveStandalone(data);
      },
      onGiveUp: (cause) => this.#refused(cause),
    });
    this.#standalone.open();
  }

  /**
   * Most refusals are temporary, such as those of a proxy during maintenance or of a token service that is down. Meanwhile the
   * session may be in use.
   */
  #refused(cause: HostError): void {
    const { clock } = this.#owner.deps;
    const { httpStatus } = cause.details;
    this.#standalone = undefined;
    if (httpStatus === methodNotAllowed) return;
    if (cause instanceof TokenRefused) this.#refusedHash = cause.sentHash;
    const pauseMs = backoffMs(refusedMs.first, this.#refusals++, refusedMs.max);
    this.#cancelReopen = clock.at(clock.nowMs() + pauseMs, () => this.openStandalone());
    if (httpStatus === 404 || httpStatus === 400) this.#owner.sessionMaybeLost();
  }

  tokenAccepted(token: AuthToken | undefined): void {
    if (this.#refusedHash !== undefined && tokenHash(token) !== this.#refusedHash) this.openStandalone();
  }

  closeStandalone(): void {
    this.#cancelReopen();
    this.#refusals = 0;
    this.#refusedHash = undefined;
    this.#standalone?.stop();
    this.#standalone = undefined;
  }

  /** Continues the stream of this call after `lastEventId`. */
  resume(call: PostCall, lastEventId: string): void {
    const stream = new GetStream(this.#owner, {
      retries: 'some',
      lastEventId,
      retryMs: call.retryMs,
      onEvent: ({ data }) => data.length > 0 && call.receive(data),
      // The server has received the request, even if this GET fails.
      onGiveUp: (cause) => call.fail(uncertain(cause)),
    });
    this.#resumed.set(call, stream);
    stream.openLater();
  }

  forget(call: PostCall): void {
    this.#resumed.get(call)?.stop();
    this.#resumed.delete(call);
  }

  close(): void {
    this.closeStandalone();
    for (const stream of this.#resumed.values()) stream.stop();
    this.#resumed.clear();
  }
}

/** `session_expired` would mean that the server refused the request. But the server received it and may have executed it. */
function uncertain(error: HostError): HostError {
  const isExpired = error.details.reason === 'session_expired';
  return error.with({ ...(isExpired ? { reason: 'stream_lost' } : {}), execution: 'uncertain', cause: error });
}

const notEventStream = (server: string): HostError =>
  new HostError('protocol_error', `server '${server}' answered with no event stream`, {
    server,
    reason: 'content_type',
    httpStatus: 200,
    execution: 'not_executed',
  });

const retryMsDefault = 1_000;
const retryMsMin = 100;
const retryMsMax = 60_000;

/**
 * Delay before an event stream is fetched again. It is at least the `retry:` of the server, capped at one minute.
 * It grows with `fruitless`, the number of consecutive attempts without data, and has jitter.
 */
export function reconnectDelayMs(
  retryMs: number | undefined,
  fruitless: number,
  grownMsMax: number,
  random: Random,
): number {
  const requestedMs = Math.min(Math.max(retryMs ?? retryMsDefault, retryMsMin), retryMsMax);
  if (fruitless === 0) return requestedMs;
  const grownMs = backoffMs(requestedMs, fruitless, grownMsMax);
  return grownMs <= requestedMs ? requestedMs : requestedMs + random() * (grownMs - requestedMs);
}
