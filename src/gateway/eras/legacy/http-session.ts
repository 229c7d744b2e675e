/**
 * One legacy session over HTTP, bound to one principal and endpoint.
 * Not here: number and lifetime of sessions (session-table.ts), HTTP itself (http.ts).
 * Invariants: the end of a session ends its requests and streams. Two open requests never share an id. Notifications without a
 * request are sent on the GET stream; while the client is disconnected they are stored up to a limit.
 */
import type { Clock } from '../../../kernel/clock.js';
import type { Principal } from '../../../policy/operation.js';
import type { JsonText } from '../../../wire/channel.js';
import { RPC } from '../../../wire/methods.js';
import type { Client, ClientCapabilities, ClientSession, EndpointId, RpcFailure } from '../../exchange.js';
import { notificationText } from '../../exchange.js';
import type { HttpLimits } from '../../http/http-limits.js';
import { ClientRequests } from './client-requests.js';
import { type EventBudget, type EventCount, EventStore, EventStream } from './event-stream.js';

/** Failure of the requests that are open when their session ends. */
export const sessionEnded: RpcFailure = {
  code: RPC.invalidRequest,
  message: 'the session of this request was ended; open a new one with initialize',
};

/** Number of the stream that GET opens. */
const ownStreamNo = 0;

export class LegacySession implements ClientSession {
  readonly id: string;
  /** Principal of the last request. Its role may change during the session. */
  principal: Principal;
  readonly endpoint: EndpointId;
  readonly version: string;
  readonly capabilities: ClientCapabilities;
  readonly era = 'legacy';
  readonly asks: ClientRequests;
  /** Open requests by the JSON text of their id. */
  readonly exchanges = new Map<string, { cancel(failure: RpcFailure): void }>();
  readonly own: EventStream;
  isInitialized = false;
  wasUsed = false;
  /** Listener of the session table, called at each use. */
  onTouch: { touched(session: LegacySession): void } | undefined;
  readonly #clock: Clock;
  readonly #abort = new AbortController();
  readonly #store: EventStore;
  readonly #count: EventCount = { last: 0 };
  /** Streams of open requests. Undefined without streams, to save memory in idle sessions. */
  #streams: Map<number, EventStream> | undefined;
  #lastStreamNo = ownStreamNo;
  #usedAtMs: number;

  constructor(facts: Omit<Client, 'era'>, clock: Clock, limits: HttpLimits, budget: EventBudget) {
    this.id = facts.id;
    this.principal = facts.principal;
    this.endpoint = facts.endpoint;
    this.version = facts.version;
    this.capabilities = facts.capabilities;
    this.#clock = clock;
    this.#usedAtMs = clock.nowMs();
    this.#store = new EventStore(budget, limits.eventsPerSession, limits.eventBytesPerSession);
    this.asks = new ClientRequests(clock, limits.asksPerSession);
    this.own = new EventStream(ownStreamNo, this.#store, this.#count);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get isOver(): boolean {
    return this.#abort.signal.aborted;
  }

  /** Time of the last use; undefined while a request or the GET stream is open. */
  get idleSinceMs(): number | undefined {
    return this.exchanges.size > 0 || this.own.isRead ? undefined : this.#usedAtMs;
  }

  get usedAtMs(): number {
    return this.#usedAtMs;
  }

  /** Called when the client sends a message, and when a request or stream of the session ends. */
  touch(): void {
    this.#usedAtMs = this.#clock.nowMs();
    this.onTouch?.touched(this);
  }

  notify(method: string, params: JsonText | undefined): void {
    if (this.isOver) return;
    // Pending notifications without params are identical, so the stream merges them.
    if (params === undefined) this.own.announce(method);
    else this.own.send(notificationText(method, params));
  }

  newStream(): EventStream {
    const stream = new EventStream(++this.#lastStreamNo, this.#store, this.#count);
    this.#streams ??= new Map();
    this.#streams.set(stream.no, stream);
    return stream;
  }

  endStream(stream: EventStream): void {
    stream.end();
    if (this.#streams?.delete(stream.no) && this.#streams.size === 0) this.#streams = undefined;
  }

  /** `no`: the number in an event id. `finished`: the answer was written, and its events may still be stored. */
  streamAt(no: number): EventStream | 'finished' | undefined {
    if (no === ownStreamNo) return this.own;
    return this.#streams?.get(no) ?? (no <= this.#lastStreamNo ? 'finished' : undefined);
  }

  /** A stream that replays the stored events of a finished one. */
  finishedStream(no: number): EventStream {
    return new EventStream(no, this.#store, this.#count);
  }

  end(): void {
    if (this.isOver) return;
    this.#abort.abort();
    this.asks.end();
    for (const exchange of [...this.exchanges.values()]) exchange.cancel(sessionEnded);
    this.own.end();
    for (const stream of this.#streams?.values() ?? []) stream.end();
    this.#streams = undefined;
    this.#store.clear();
  }
}
