/**
 * Ports and connections that exist only on a FakeClock. A `SimulatedPool` replaces undici's Pool: it has a fixed number of
 * connections, queues further requests, keeps connections alive, and calls its handlers as undici 7 does. Each origin has one
 * `HttpHandler`, which answers, hangs or resets.
 *
 * Invariants: `onRequestStart` is called right before the server can see the request, and never for a connection that was
 * refused; each handler gets exactly one of `onResponseEnd` and `onResponseError`; an abort is reported in the same tick.
 */
import type { Dispatcher } from 'undici';
import type { Cancel } from '../../src/kernel/clock.js';
import { type Random, randomInt } from '../../src/kernel/random.js';
import type { Timers } from './timers.js';

export interface HttpRequest {
  readonly method: string;
  /** Names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  /** Time at which the client wrote it. A broken network may deliver it later. */
  readonly sentAtMs: number;
}

/** The server's end of one exchange. After the exchange has ended, its methods do nothing. */
export interface HttpReply {
  /** False if the client has left, the connection was reset, or the reply is complete. */
  readonly isOpen: boolean;
  /** Time at which the client aborted it. */
  readonly abortedAtMs: number | undefined;
  head(status: number, headers?: Readonly<Record<string, string>>): void;
  data(text: string): void;
  end(): void;
  reset(): void;
}

export type HttpHandler = (request: HttpRequest, reply: HttpReply) => void;

/** A port that is open, closed, or unreachable because the network drops packets. */
export class Port {
  readonly #handler: HttpHandler;
  readonly #exchanges = new Set<Exchange>();
  #isOpen = true;
  /** Packets that wait until the network works again; undefined while it works. */
  #unheard: Set<() => void> | undefined;
  /** Number of times that the port was closed: older connections are dead. */
  #closings = 0;

  /** `failed` is called with each request that the client gets no response to. */
  constructor(
    handler: HttpHandler,
    readonly failed: (request: HttpRequest) => void,
  ) {
    this.#handler = handler;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get closings(): number {
    return this.#closings;
  }

  /** Exchanges whose request was written and whose response is not complete. */
  get exchanges(): number {
    return this.#exchanges.size;
  }

  /** Opens the port and delivers waiting packets. */
  open(): void {
    this.#isOpen = true;
    const unheard = this.#unheard;
    this.#unheard = undefined;
    for (const arrive of unheard ?? []) arrive();
  }

  /** Drops the network: packets wait. */
  silence(): void {
    this.#unheard ??= new Set();
  }

  /** Calls `arrive` when the network delivers packets, which may be now. Returns a function that cancels the call. */
  reach(arrive: () => void): Cancel {
    if (!this.#unheard) {
      arrive();
      return () => {};
    }
    this.#unheard.add(arrive);
    return () => this.#unheard?.delete(arrive);
  }

  /** Connections are reset, and new ones refused. */
  close(): void {
    this.open();
    this.#isOpen = false;
    this.resetAll();
  }

  resetAll(): void {
    this.#closings++;
    for (const exchange of [...this.#exchanges]) exchange.reset();
  }

  entered(exchange: Exchange, request: HttpRequest): void {
    this.#exchanges.add(exchange);
    this.#handler(request, exchange);
  }

  left(exchange: Exchange): void {
    this.#exchanges.delete(exchange);
  }
}

/** Time limit for connecting, as in undici. */
const dialMsMax = 10_000;

export interface NetworkParts {
  readonly timers: Timers;
  readonly random: Random;
  /** The port behind an origin. */
  readonly portOf: (origin: string) => Port;
}

export class SimulatedNetwork {
  readonly #parts: NetworkParts;
  readonly #pools = new Set<SimulatedPool>();

  constructor(parts: NetworkParts) {
    this.#parts = parts;
  }

  /** For `SimulatedTransports.pool`. */
  readonly pool = (origin: string, connections: number): Dispatcher => {
    const pool = new SimulatedPool(this.#parts, this.#parts.portOf(origin), connections, () =>
      this.#pools.delete(pool),
    );
    this.#pools.add(pool);
    // HttpExchange and the channels use nothing else of a Dispatcher.
    return pool as unknown as Dispatcher;
  };

  /** Pools that were not destroyed. */
  get pools(): number {
    return this.#pools.size;
  }
}

class SimulatedPool {
  readonly parts: NetworkParts;
  readonly port: Port;
  readonly #connections: number;
  readonly #onDestroyed: () => void;
  readonly #queue: Exchange[] = [];
  readonly #busy = new Set<Exchange>();
  /** Idle connections, each with the `closings` of the port when it was made. */
  readonly #idle: number[] = [];
  #isDestroyed = false;

  constructor(parts: NetworkParts, port: Port, connections: number, onDestroyed: () => void) {
    this.parts = parts;
    this.port = port;
    this.#connections = connections;
    this.#onDestroyed = onDestroyed;
  }

  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const exchange = new Exchange(this, options, handler);
    if (this.#isDestroyed) exchange.fail(networkError('UND_ERR_DESTROYED'));
    else {
      this.#queue.push(exchange);
      this.#drain();
    }
    return this.#queue.length === 0;
  }

  async destroy(): Promise<void> {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    this.#onDestroyed();
    for (const exchange of [...this.#busy, ...this.#queue.splice(0)]) exchange.abort(networkError('UND_ERR_DESTROYED'));
  }

  close(): Promise<void> {
    return this.destroy();
  }

  /** Called when the exchange no longer needs its connection. */
  released(exchange: Exchange, isReusable: boolean): void {
    if (!this.#busy.delete(exchange)) return;
    if (isReusable) this.#idle.push(this.port.closings);
    // As in undici, the next request does not start inside a handler of the previous one.
    queueMicrotask(() => this.#drain());
  }

  #drain(): void {
    while (!this.#isDestroyed && this.#busy.size < this.#connections) {
      const exchange = this.#queue.shift();
      if (!exchange) return;
      this.#busy.add(exchange);
      exchange.connect(this.#takeIdle());
    }
  }

  #takeIdle(): boolean {
    for (let made = this.#idle.pop(); made !== undefined; made = this.#idle.pop())
      if (made === this.port.closings && this.port.isOpen) return true;
    return false;
  }
}

class Exchange implements HttpReply, Dispatcher.DispatchController {
  readonly rawHeaders = null;
  readonly rawTrailers = null;
  readonly #pool: SimulatedPool;
  readonly #options: Dispatcher.DispatchOptions;
  readonly #handler: Dispatcher.DispatchHandler;
  /** Time at which the client dispatched the request. It cannot be withdrawn while its connection is opened. */
  readonly #sentAtMs: number;
  #cancelTimer: Cancel | undefined;
  #cancelReach: Cancel | undefined;
  #isOver = false;
  #hasHead = false;
  #reason: Error | null = null;
  abortedAtMs: number | undefined;

  constructor(pool: SimulatedPool, options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler) {
    this.#pool = pool;
    this.#options = options;
    this.#handler = handler;
    this.#sentAtMs = pool.parts.timers.nowMs();
  }

  /** `isAlive`: uses an existing connection. */
  connect(isAlive: boolean): void {
    const { timers, random } = this.#pool.parts;
    if (isAlive) return this.#start();
    this.#cancelTimer = timers.after(dialMsMax, () => this.fail(networkError('UND_ERR_CONNECT_TIMEOUT')));
    this.#cancelReach = this.#pool.port.reach(() => {
      this.#cancelTimer?.();
      this.#cancelTimer = timers.after(randomInt(random, 0, 3), () => {
        if (this.#pool.port.isOpen) this.#start();
        else this.fail(networkError('ECONNREFUSED'));
      });
    });
  }

  #start(): void {
    this.#handler.onRequestStart?.(this, {});
    if (this.#isOver) return;
    const { timers, random } = this.#pool.parts;
    const { closings } = this.#pool.port;
    this.#cancelTimer = timers.after(randomInt(random, 0, 10), () => {
      this.#cancelReach = this.#pool.port.reach(() => {
        if (this.#pool.port.closings !== closings) this.reset();
        else this.#pool.port.entered(this, this.#request());
      });
    });
  }

  // --- the server's end

  get isOpen(): boolean {
    return !this.#isOver;
  }

  head(status: number, headers: Readonly<Record<string, string>> = {}): void {
    if (this.#isOver || this.#hasHead) return;
    this.#hasHead = true;
    this.#handler.onResponseStart?.(this, status, { ...headers });
  }

  data(text: string): void {
    if (!this.#isOver && this.#hasHead) this.#handler.onResponseData?.(this, Buffer.from(text));
  }

  end(): void {
    if (this.#isOver) return;
    this.#over(true);
    this.#handler.onResponseEnd?.(this, {});
  }

  reset(): void {
    this.fail(networkError('ECONNRESET'));
  }

  // --- the client's end

  get aborted(): boolean {
    return this.#reason !== null;
  }

  get paused(): boolean {
    return false;
  }

  get reason(): Error | null {
    return this.#reason;
  }

  pause(): void {}
  resume(): void {}

  abort(reason: Error): void {
    if (this.#isOver) return;
    this.#reason = reason;
    this.abortedAtMs = this.#pool.parts.timers.nowMs();
    this.fail(reason);
  }

  fail(error: Error): void {
    if (this.#isOver) return;
    this.#over(false);
    this.#pool.port.failed(this.#request());
    this.#handler.onResponseError?.(this, error);
  }

  #request(): HttpRequest {
    return requestOf(this.#options, this.#sentAtMs);
  }

  #over(isReusable: boolean): void {
    this.#isOver = true;
    this.#cancelTimer?.();
    this.#cancelReach?.();
    this.#pool.port.left(this);
    this.#pool.released(this, isReusable);
  }
}

function requestOf({ method, headers, body }: Dispatcher.DispatchOptions, sentAtMs: number): HttpRequest {
  const list = headers as readonly string[];
  const pairs = new Map<string, string>();
  for (let at = 0; at < list.length; at += 2) pairs.set(String(list[at]).toLowerCase(), String(list[at + 1]));
  return { method, headers: pairs, body: body === null || body === undefined ? '' : String(body), sentAtMs };
}

const networkError = (code: string): Error => Object.assign(new Error(code), { code });
