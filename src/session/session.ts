/**
 * An open connection to one MCP server: requests by the rules of its era, lists and liveness.
 * Not here: opening and negotiating (open-session.ts), deciding whether a failed call may be repeated (policy/).
 * Invariant: a request is repeated only if the server refused it before doing anything (unknown session, mismatched headers).
 */
import type { Clock } from '../kernel/clock.js';
import type { Complete } from '../kernel/complete.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Channel, HttpFacts, JsonText } from '../wire/channel.js';
import { checkObject, checkParams } from '../wire/json-edit.js';
import { RPC } from '../wire/methods.js';
import type { Peer } from '../wire/peer.js';
import type { Answer, PeerHandlers, RequestOptions } from '../wire/peer-interface.js';
import { Ending } from './ending.js';
import { eraNamed } from './eras/eras.js';
import type { ClientIdentity, HttpSession, RequestMirror, ServerEra, ServerFacts } from './eras/server-era.js';
import { type ListMethod, readList, type ServerList } from './lists.js';
import { defaultLiveness, failedProbe, Liveness, type LivenessPlan, type ProbeResult } from './liveness.js';
import { callParams, type RelayedParams, type RequestMeta, requestParams } from './request-params.js';
import { readRpcError, refusesEra, resultOf } from './rpc-response.js';

/** `onProgress` and `extend` give the request a progress token. */
export interface CallOptions extends Omit<RequestOptions, 'progressToken' | 'http' | 'uncancellable'> {
  /** Members that a relayed request has besides its own params. Undefined for requests of Hostler itself. */
  readonly relay?: RelayedParams | undefined;
}

/** Arguments of a tool: an object, or the text of exactly one JSON object. */
export type ToolArguments = Readonly<Record<string, unknown>> | JsonText;

/** Events of the peer, except those that the session handles itself. */
export interface SessionHandlers extends Omit<PeerHandlers, 'sessionMaybeLost' | 'stalled'> {
  /** The server has not answered a request, and missed a probe. The session may recover; its end is reported as `closed`. */
  missed?(): void;
  answered?(): void;
  /**
   * The server lost its HTTP session, and a new one is open. Tool calls wait for the promises of the returned function, one
   * after the other, until the function returns undefined.
   */
  renewed?(): (() => Promise<void> | undefined) | undefined;
}

interface SessionParts {
  readonly server: string;
  readonly peer: Peer;
  readonly clock: Clock;
  readonly client: ClientIdentity;
  readonly facts: ServerFacts;
  readonly clean: (text: string) => string;
  /** Time from the start to the end of negotiation. */
  readonly startedInMs: number;
  readonly liveness?: LivenessPlan | undefined;
  readonly handlers: SessionHandlers;
  readonly renew: () => Promise<ServerFacts>;
  /** Sends the opening request of the era again, and changes nothing. Undefined: the server speaks another era. */
  readonly ask: (deadlineAtMs: number) => Promise<ServerFacts | undefined>;
}

/** Time limit of the probe when no request can be sent. */
const stallCheckMs = 5_000;

const notOffered: ServerList = { items: [], pages: 0, ttlMs: 0, cacheScope: 'private' };

export class Session {
  readonly server: string;
  readonly startedInMs: number;
  readonly #parts: SessionParts;
  readonly #peer: Peer;
  readonly #liveness: Liveness;
  readonly #era: ServerEra;
  /** Members that the era adds to every request. */
  readonly #meta: RequestMeta | undefined;
  /** Set if headers repeat parts of each request. */
  readonly #mirror: RequestMirror | undefined;
  /** Set over HTTP, where the server may refuse the session or the protocol of a request. */
  readonly #httpSession: HttpSession | undefined;
  /** Activity of the channel (`ChannelListener.stalled`) at its last stall. */
  #stalledActivity: number | undefined;
  readonly #isHttp: boolean;
  #facts: ServerFacts;
  readonly #ending: Ending;

  constructor(parts: SessionParts) {
    const { server, peer, clock, handlers } = parts;
    const era = eraNamed(parts.facts.era);
    this.#parts = parts;
    this.#peer = peer;
    this.#facts = parts.facts;
    this.server = server;
    this.startedInMs = parts.startedInMs;
    this.#era = era;
    this.#ending = new Ending({ server, peer, clock, missed: () => handlers.missed?.() });
    this.#meta = era.requestMeta(parts.client);
    this.#isHttp = peer.channel.kind === 'streamable-http';
    if (this.#isHttp || peer.channel.mirrorsHeaders) this.#mirror = era.newMirror?.();
    if (this.#isHttp || peer.channel.kind === 'http-sse') {
      this.#httpSession = era.newHttpSession({
        ...{ server, peer, clock },
        open: async () => {
          this.#facts = await parts.renew();
        },
        onSlow: () => this.#checkOrEnd(),
        renewed: () => {
          handlers.answered?.();
          return handlers.renewed?.();
        },
        lost: () => handlers.missed?.(),
        ask: (deadlineAtMs) =>
          parts.ask(deadlineAtMs).then(
            (facts) => (facts ? 'known' : 'refused'),
            (error: unknown) => (refusesEra(error) ? 'refused' : 'unanswered'),
          ),
        over: () => this.#ending.begin(),
      });
    }
    this.#liveness = new Liveness(parts.liveness ?? defaultLiveness, clock, {
      inFlight: () => peer.pending.unansweredBesides(era.livenessMethod),
      // A server that waits for an answer from Hostler counts as alive: some servers read nothing else until the answer
      // arrives.
      lastMessageAtMs: () => (peer.openServerRequests > 0 ? clock.nowMs() : peer.lastMessageAtMs),
      probe: (deadlineAtMs) => this.probe(deadlineAtMs),
      missed: () => handlers.missed?.(),
      answered: () => handlers.answered?.(),
      dead: (misses) => void peer.abandon(this.#unresponsive(misses)),
    });
    peer.onGivenUp = (allowedUntilMs) => this.#liveness.gaveUp(allowedUntilMs);
  }

  get facts(): ServerFacts {
    return this.#facts;
  }

  get channel(): Channel {
    return this.#peer.channel;
  }

  get hasListenStream(): boolean {
    return this.#era.hasListenStream;
  }

  /** Tools left out of the last list because their header annotations are not allowed, with the reason. */
  get droppedTools(): ReadonlyMap<string, string> {
    return this.#mirror?.dropped ?? noTools;
  }

  get isAtWork(): boolean {
    return this.#peer.pending.isAtWork;
  }

  /** Requests that the server has not answered yet. */
  get unanswered(): number {
    return this.#peer.pending.unanswered;
  }

  get lastMessageAtMs(): number {
    return this.#peer.lastMessageAtMs;
  }

  /** Requests and log messages of the server that reached no client, because several requests could have caused them. */
  get unattributed(): number {
    return this.#peer.counters.unattributed;
  }

  /** Error after which the connection takes no more requests. Answers to earlier requests may still arrive. */
  get closedBy(): HostError | undefined {
    return this.#peer.closedBy ?? this.#peer.channel.endedBy;
  }

  /** Sends raw params. An error from the server is an answer; a rejection is a HostError. */
  request(method: string, params: JsonText | undefined, options: CallOptions): Promise<Answer> {
    try {
      if (params !== undefined) checkParams(params);
      const token = this.#tokenFor(options);
      const text = requestParams(this.#meta, params, token, options.relay);
      return this.#send(method, text, options, token, this.#mirror?.headersOf(method, params));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Arguments given as text must be one JSON object, and are sent unchanged. */
  callTool(name: string, args: ToolArguments | undefined, options: CallOptions): Promise<Answer> {
    try {
      return this.#callChecked(name, argumentsText(args), options);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Like `callTool`, for checked arguments. Where possible, `done` is called in the tick in which the outcome arrives. */
  callToolWithCallback(
    name: string,
    args: JsonText,
    options: CallOptions,
    done: (outcome: Answer | Error) => void,
  ): void {
    try {
      if (this.#isHttp) return void this.#callChecked(name, args, options).then(done, done);
      const params = callParams(this.#meta, name, args, this.#tokenFor(options), options.relay);
      const { requestWithCallback } = this.#httpSession ?? {};
      if (requestWithCallback) requestWithCallback.call(this.#httpSession, 'tools/call', params, options, done);
      else this.#peer.requestWithCallback('tools/call', params, options, done);
    } catch (error) {
      done(error as Error);
    }
  }

  #callChecked(name: string, args: JsonText | undefined, options: CallOptions): Promise<Answer> {
    const sent = this.#sendCall(name, args, options);
    return this.#mirror ? this.#orMirrored(this.#mirror, sent, name, args, options) : sent;
  }

  /** If the server refuses a call for its headers, lists the tools again and sends the call once more. */
  async #orMirrored(
    mirror: RequestMirror,
    sent: Promise<Answer>,
    name: string,
    args: JsonText | undefined,
    options: CallOptions,
  ): Promise<Answer> {
    try {
      const answer = await sent;
      if (!mirror.isMismatch(answer)) return answer;
    } catch (error) {
      if (!mirror.isMismatch(error)) throw error;
    }
    // The relayed params and handlers belong to the call, not to this list request.
    const { deadlineAtMs, signal } = options;
    await this.list('tools/list', { deadlineAtMs, signal });
    return this.#sendCall(name, args, options);
  }

  /** Returns the whole list with raw items; an empty list if the server does not offer it. */
  async list(method: ListMethod, options: CallOptions): Promise<ServerList> {
    let missing = false;
    const list = await readList(this.server, method, async (params) => {
      const answer = await this.request(method, params, options);
      const isFirst = params === undefined;
      missing = isFirst && answer.kind === 'error' && readRpcError(answer.bytes).code === RPC.methodNotFound;
      return missing ? emptyPage : resultOf(answer, this.server, method, this.#parts.clean);
    });
    if (missing) return notOffered;
    return method === 'tools/list' && this.#mirror ? this.#mirror.learn(list) : list;
  }

  /**
   * Probes the server with a request that it answers at once. Any answer counts, also an error.
   * `asker`: for the breaker, 502, 503 and 504 mean silence, because it needs to know whether the server behind a proxy works. If
   * the server refuses the connection as a whole, the next call uses another one, so the breaker gets `unasked`.
   */
  async probe(deadlineAtMs: number, asker: 'supervisor' | 'breaker' = 'supervisor'): Promise<ProbeResult> {
    const { ended } = this.#ending;
    // Waits for the end instead: a refusal of the probe would count as a sign of life.
    if (ended !== undefined) return ended.then(() => (asker === 'breaker' ? 'unasked' : 'silent'));
    const unread = this.#peer.pending.unread();
    try {
      await this.request(this.#era.livenessMethod, undefined, { deadlineAtMs });
      return 'alive';
    } catch (error) {
      if (!isHostError(error)) return 'unasked';
      const { httpStatus, phase } = error.details;
      if (phase !== 'queued' && gatewayStatuses.has(httpStatus)) return asker === 'breaker' ? 'silent' : 'alive';
      const isPipe = !this.#isHttp && this.channel.kind !== 'http-sse';
      return failedProbe(error, isPipe && unread.every(({ phase }) => phase === 'queued' || phase === 'writing'));
    }
  }

  /** True: the server has lost the session, and a new one is not open yet. */
  get isLost(): boolean {
    return this.#httpSession?.isLost === true;
  }

  sessionMaybeLost(): void {
    this.#httpSession?.sessionMaybeLost();
  }

  /** Requests wait unsent. If `activity` is the same as last time, no byte was written or received since. */
  stalled(activity: number): void {
    // A server that works on a call may be silent for as long as the call may take.
    if (this.#peer.pending.isAtWork) return;
    // The server answered the probe, and still nothing is sent: the fault is in this channel, so it is replaced.
    if (activity === this.#stalledActivity) return void this.#peer.abandon(this.#stuck());
    this.#stalledActivity = activity;
    this.#checkOrEnd();
  }

  /** Resolves when all requests are answered, or after `withinMs`. Undefined: all are answered now. */
  drain(withinMs: number): Promise<void> | undefined {
    const { clock } = this.#parts;
    if (this.#peer.pending.unanswered === 0) return undefined;
    return new Promise((resolve) => {
      const over = () => {
        cancelTimer();
        this.#peer.onClear = undefined;
        resolve();
      };
      const cancelTimer = clock.at(clock.nowMs() + withinMs, over);
      this.#peer.onClear = over;
    });
  }

  async close(): Promise<void> {
    this.#liveness.stop();
    this.#httpSession?.close?.();
    this.#ending.close();
    await this.#peer.close();
  }

  #sendCall(name: string, args: JsonText | undefined, options: CallOptions): Promise<Answer> {
    const token = this.#tokenFor(options);
    const params = callParams(this.#meta, name, args, token, options.relay);
    return this.#send('tools/call', params, options, token, this.#mirror?.headersOfCall(name, args));
  }

  #send(
    method: string,
    params: JsonText | undefined,
    options: CallOptions,
    token: number | undefined,
    http: HttpFacts | undefined,
  ): Promise<Answer> {
    const { deadlineAtMs, signal, onProgress, extend, client, isLongLived, resend } = options;
    const { onServerRequest, onServerNotification } = options;
    // Written out: a spread costs more than the rest of this hot path. `nowMs` is left out: it is stale in a later tick.
    const own: Complete<Omit<RequestOptions, 'nowMs' | 'progressToken' | 'uncancellable'>> = {
      deadlineAtMs,
      signal,
      onProgress,
      extend,
      client,
      onServerRequest,
      onServerNotification,
      isLongLived,
      resend,
      http,
    };
    return this.#httpSession
      ? this.#httpSession.send(method, params, own, token)
      : this.#peer.request(method, params, own);
  }

  /** No request can be sent: marks the server as suspect and probes it. Without an answer, ends the connection. */
  #checkOrEnd(): void {
    const { clock, handlers } = this.#parts;
    if (this.#peer.pending.isAtWork) return;
    handlers.missed?.();
    void this.probe(clock.nowMs() + stallCheckMs).then((result) => {
      if (result === 'alive') handlers.answered?.();
      else if (!this.#peer.pending.isAtWork) void this.#peer.abandon(this.#stuck());
    });
  }

  #stuck(): HostError {
    return new HostError('transport', `server '${this.server}': requests can no longer be sent`, {
      server: this.server,
      reason: 'stalled',
      hint: 'the connection is opened again; if this repeats, check whether the server reads its requests',
    });
  }

  #tokenFor({ onProgress, extend }: CallOptions): number | undefined {
    return onProgress || extend ? this.#peer.nextId : undefined;
  }

  #unresponsive(misses: number): HostError {
    return new HostError('transport', `server '${this.server}' runs but answered none of ${misses} probes`, {
      server: this.server,
      reason: 'unresponsive',
      execution: 'uncertain',
      hint: 'restart it; if this repeats, look at its stderr or raise timeouts.call',
    });
  }
}

const emptyPage = Buffer.from('{}');
const noTools: ReadonlyMap<string, string> = new Map();
const gatewayStatuses: ReadonlySet<number | undefined> = new Set([502, 503, 504]);

/** Text is checked: otherwise it could close the bracket of the params and add members. */
function argumentsText(args: ToolArguments | undefined): JsonText | undefined {
  if (args === undefined) return undefined;
  if (typeof args !== 'string' && !(args instanceof Uint8Array)) return JSON.stringify(args);
  checkObject(args, 'arguments');
  return args;
}
