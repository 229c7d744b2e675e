/**
 * An event stream that is fetched by GET and fetched again when it breaks, from where it broke (`Last-Event-ID`).
 * Two uses: the standalone stream of a legacy session, which is reopened for ever, and the rest of one call's answer,
 * which is given up when it cannot be had. Not here: what the events say.
 *
 * Invariant: an id counts as seen only when its event was delivered, so that a cut between the two loses nothing and
 * repeats nothing.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import type { Random } from '../../kernel/random.js';
import { inboundTooLarge } from '../../wire/wire-errors.js';
import type { AuthToken } from './auth-token.js';
import type { ExchangeSink, HttpExchange, ResponseHeaders } from './http-exchange.js';
import { reconnectDelayMs } from './reconnect-delay.js';
import { type SseEvent, SseParser } from './sse-parser.js';
import { headerText, statusError } from './status-error.js';

/** A stream that lived this long was a good one: the next failure is the first again. */
const healthyMs = 5_000;
const failuresMax = 5;
/** How far the wait grows after failures, and while a stream that is reopened for ever brings nothing. */
const grownMsMax = 30_000;
/** A caller waits for the rest of an answer: for a server that has nothing yet, the wait grows no further than this. */
const pollMsMax = 1_000;
/** Lower bound from one GET to the next: a server may end the standalone stream after every event and ask for `retry: 1`. */
const standaloneIntervalMs = 1_000;

interface GetStreamOptions {
  readonly server: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Starts the GET. */
  readonly open: (lastEventId: string | undefined, sink: ExchangeSink) => HttpExchange;
  /** What the GET that was just started is authorized with. */
  readonly token: () => AuthToken | undefined;
  readonly lastEventId?: string | undefined;
  readonly retryMs?: number | undefined;
  /** Never give up for reasons that may pass. */
  readonly endless: boolean;
  readonly onData: (data: Buffer) => void;
  /** The stream is over for good. Not called after `stop`. */
  readonly onGiveUp: (error: HostError) => void;
}

/** Not now, or the server still holds the stream that just broke: asked again, where other refusals are final. */
const passingStatuses = [408, 409, 425, 429];

export class GetStream implements ExchangeSink {
  readonly #options: GetStreamOptions;
  #lastEventId: string | undefined;
  #retryMs: number | undefined;
  #exchange: HttpExchange | undefined;
  #sent: AuthToken | undefined;
  #parser: SseParser | undefined;
  #cancelWait: Cancel = () => {};
  #askedAtMs = Number.NEGATIVE_INFINITY;
  #failures = 0;
  /** Streams in a row that ended cleanly and brought no data. */
  #idle = 0;
  #openedAtMs: number | undefined;
  /** The present stream brought data. */
  #heard = false;
  #fatal: HostError | undefined;
  #tooLarge: HostError | undefined;
  #stopped = false;

  constructor(options: GetStreamOptions) {
    this.#options = options;
    this.#lastEventId = options.lastEventId;
    this.#retryMs = options.retryMs;
  }

  open(): void {
    if (this.#stopped) return;
    this.#parser = this.#openedAtMs = this.#tooLarge = undefined;
    this.#heard = false;
    this.#askedAtMs = this.#options.clock.nowMs();
    this.#exchange = this.#options.open(this.#lastEventId, this);
    this.#sent = this.#options.token();
  }

  /** Opens after the time the server asked for, or later when it was asked in vain. */
  openLater(): void {
    const { clock, random, endless } = this.#options;
    const delayMs =
      this.#failures > 0 || endless
        ? reconnectDelayMs(this.#retryMs, this.#failures + this.#idle, grownMsMax, random)
        : reconnectDelayMs(this.#retryMs, this.#idle, pollMsMax, random);
    const earliestMs = endless ? this.#askedAtMs + standaloneIntervalMs : 0;
    this.#cancelWait = clock.at(Math.max(clock.nowMs() + delayMs, earliestMs), () => this.open());
  }

  stop(): void {
    this.#stopped = true;
    this.#cancelWait();
    this.#exchange?.abort();
  }

  started(): void {}
  released(): void {}

  head(status: number, headers: ResponseHeaders): HostError | undefined {
    const { server, clock } = this.#options;
    if (status === 200 && headerText(headers, 'content-type')?.toLowerCase().startsWith('text/event-stream')) {
      this.#openedAtMs = clock.nowMs();
      this.#parser = new SseParser(
        LIMITS.frameBytes,
        (event) => this.#event(event),
        (bytes) => this.#eventTooLarge(bytes),
      );
      return undefined;
    }
    const facts = { server, status, headers, inSession: true, rpcCode: undefined, sent: this.#sent };
    const error = statusError({ ...facts, now: clock.date() });
    if (status < 500 && !passingStatuses.includes(status)) this.#fatal = error;
    return error;
  }

  data(chunk: Buffer): HostError | undefined {
    this.#parser?.push(chunk);
    return this.#tooLarge;
  }

  end(): void {
    this.#parser?.end();
    this.#again(
      new HostError('transport', `server '${this.#options.server}' ended its event stream`, {
        server: this.#options.server,
      }),
      true,
    );
  }

  failed(error: HostError): void {
    this.#again(error, false);
  }

  #again(error: HostError, clean: boolean): void {
    if (this.#stopped) return;
    this.#exchange = undefined;
    if (this.#fatal) return this.#giveUp(this.#fatal);
    const livedMs = this.#openedAtMs === undefined ? 0 : this.#options.clock.nowMs() - this.#openedAtMs;
    if ((clean && this.#heard) || livedMs >= healthyMs) this.#failures = this.#idle = 0;
    else if (clean) {
      // A server may end a stream whenever it likes and be asked again: that is polling, not failure.
      this.#failures = 0;
      this.#idle++;
    } else this.#failures++;
    if (!clean && !this.#options.endless && this.#failures >= failuresMax) return this.#giveUp(error);
    this.openLater();
  }

  #giveUp(error: HostError): void {
    this.#stopped = true;
    this.#options.onGiveUp(error);
  }

  #event(event: SseEvent): void {
    if (this.#stopped) return;
    if (event.retryMs !== undefined) this.#retryMs = event.retryMs;
    if (event.data.length > 0) {
      this.#heard = true;
      this.#options.onData(event.data);
    }
    if (event.id !== undefined) this.#lastEventId = event.id === '' ? undefined : event.id;
  }

  #eventTooLarge(bytes: number): void {
    const { server, endless } = this.#options;
    this.#tooLarge = inboundTooLarge(server, bytes);
    if (!endless) this.#fatal = this.#tooLarge;
    // Asked from the last id, the server would send the same event again.
    this.#lastEventId = undefined;
  }
}
