/**
 * One MCP server that can be spoken to: requests in its era's words, lists, liveness, and a legacy HTTP session that is
 * renewed when the server has forgotten it.
 * Not here: opening and negotiating (open-session.ts), deciding whether a failed call may be repeated (policy).
 * Invariant: the only requests repeated here are those the server itself refused before doing anything: for an unknown
 * session, or for mismatched headers.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { CauseHandlers } from '../wire/attribution.js';
import type { Channel, HttpFacts } from '../wire/channel.js';
import type { JsonText } from '../wire/frame.js';
import { spliceMeta } from '../wire/json-edit.js';
import { checkObject, checkParams, toBuffer } from '../wire/json-text.js';
import type { Peer } from '../wire/peer.js';
import type { Answer, DeadlineExtension, PeerHandlers, RequestOptions } from '../wire/peer-interface.js';
import { RPC } from '../wire/rpc-codes.js';
import { eraNamed } from './eras/eras.js';
import type { ClientIdentity, HttpSession, RequestMirror, ServerEra, ServerFacts } from './eras/server-era.js';
import { type ListMethod, readList, type ServerList } from './lists.js';
import { defaultLiveness, Liveness, type LivenessPlan, type ProbeResult } from './liveness.js';
import {
  callParams,
  metaEdits,
  metaMembers,
  type RelayedParams,
  type RequestMeta,
  withMembers,
} from './request-params.js';
import { readRpcError, resultOf } from './rpc-response.js';

export interface CallOptions extends CauseHandlers {
  /** On the session's clock. */
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
  /** Params of each progress notification, raw. Asking for progress sends a token. */
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  /** Lets progress move the deadline. */
  readonly extend?: DeadlineExtension | undefined;
  /** What the clock says in this very tick, where it was just asked. */
  readonly nowMs?: number | undefined;
  /** The client that it is made for: opaque, the same for all requests of one client (wire/peer-interface.ts). */
  readonly client?: string | undefined;
  /** What is said on behalf of somebody else; undefined when it is our own request. */
  readonly relay?: RelayedParams | undefined;
  /** Stays open for as long as the session does: neither its silence nor its being there says anything about the server. */
  readonly isStanding?: boolean | undefined;
}

/** Arguments of a tool: an object, or the text of exactly one JSON object. */
export type ToolArguments = Readonly<Record<string, unknown>> | JsonText;

/** Who is told what a session notices by itself. Doubt is not the end: a session that is given up is told as `closed`. */
export interface LivenessHandlers {
  /** It owes an answer, was asked for a sign of life, and gave none. */
  missed?(): void;
  /** Something was heard after all. */
  answered?(): void;
  /** The server had forgotten a legacy session and has another now: it knows nothing of what was agreed in the old one. */
  renewed?(): void;
}

/** Without the events that the session itself handles. */
export interface SessionHandlers extends Omit<PeerHandlers, 'sessionDoubted' | 'stalled'>, LivenessHandlers {}

export interface SessionParts {
  readonly server: string;
  readonly peer: Peer;
  readonly clock: Clock;
  readonly client: ClientIdentity;
  readonly facts: ServerFacts;
  readonly clean: (text: string) => string;
  /** From the first byte of the start to the end of negotiation. */
  readonly startedInMs: number;
  readonly liveness?: LivenessPlan | undefined;
  readonly handlers?: LivenessHandlers | undefined;
  /** Opens a new legacy session on the same channel. */
  readonly renew: () => Promise<ServerFacts>;
}

/** How long a server has to give a sign of life when requests to it cannot be sent. */
const stallCheckMs = 5_000;

/** A list with nothing in it because the server does not offer it. */
const notOffered: ServerList = { items: [], pages: 0, ttlMs: 0, cacheScope: 'private' };

export class Session {
  readonly server: string;
  readonly startedInMs: number;
  readonly #parts: SessionParts;
  readonly #peer: Peer;
  readonly #liveness: Liveness;
  readonly #era: ServerEra;
  /** What the era adds to every request. */
  readonly #meta: RequestMeta | undefined;
  /** Where headers repeat parts of each request. */
  readonly #mirror: RequestMirror | undefined;
  /** Where requests are sent in a session that the server may lose. */
  readonly #httpSession: HttpSession | undefined;
  /** The activity of the channel (`ChannelListener.stalled`) when it last stalled. */
  #stalledActivity: number | undefined;
  readonly #isHttp: boolean;
  #facts: ServerFacts;
  /** Probes (`probe`) under way. */
  #probes = 0;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#peer = parts.peer;
    this.#facts = parts.facts;
    this.server = parts.server;
    this.startedInMs = parts.startedInMs;
    const { server, peer, clock } = parts;
    const era = eraNamed(parts.facts.era);
    this.#era = era;
    this.#meta = era.requestMeta(parts.client);
    this.#isHttp = peer.channel.kind === 'streamable-http';
    if (this.#isHttp || peer.channel.mirrorsHeaders) this.#mirror = era.newMirror?.();
    if (this.#isHttp) {
      this.#httpSession = era.newHttpSession?.({
        ...{ server, peer, clock },
        open: async () => {
          this.#facts = await parts.renew();
        },
        onSlow: () => this.#checkOrEnd(),
        renewed: () => parts.handlers?.renewed?.(),
      });
    }
    this.#liveness = new Liveness(parts.liveness ?? defaultLiveness, parts.clock, {
      underway: () => this.#peer.owed - this.#probes,
      // While it waits for our answer it has nothing to say: some read nothing else until it comes.
      lastHeardAtMs: () => (this.#peer.openServerRequests > 0 ? parts.clock.nowMs() : this.#peer.lastMessageAtMs),
      probe: (deadlineAtMs) => this.probe(deadlineAtMs),
      missed: () => parts.handlers?.missed?.(),
      answered: () => parts.handlers?.answered?.(),
      dead: (misses) => void this.#peer.abandon(this.#unresponsive(misses)),
    });
    this.#peer.onGivenUp = (allowedUntilMs) => this.#liveness.gaveUp(allowedUntilMs);
  }

  get facts(): ServerFacts {
    return this.#facts;
  }

  get channel(): Channel {
    return this.#peer.channel;
  }

  /** See `ServerEra`. */
  get hasListenStream(): boolean {
    return this.#era.hasListenStream;
  }

  /** Tools left out of the last list because their header annotations are not allowed, with the reason. */
  get droppedTools(): ReadonlyMap<string, string> {
    return this.#mirror?.dropped ?? noTools;
  }

  /** See `Connection`. */
  get isAtWork(): boolean {
    return this.#peer.isAtWork;
  }

  /** Requests that the server still owes an answer to. */
  get owed(): number {
    return this.#peer.owed;
  }

  /** When the server last said anything at all. */
  get heardAtMs(): number {
    return this.#peer.lastMessageAtMs;
  }

  /** Questions and log lines of the server that reached no client, because several requests could be behind them. */
  get unattributed(): number {
    return this.#peer.counters.unattributed;
  }

  /** Why the connection takes no more requests, once it does not. What it owes may still come in. */
  get closedBy(): HostError | undefined {
    return this.#peer.closedBy ?? this.#peer.channel.endedBy;
  }

  /** Sends raw params in the server's era. An error the server answers with is an answer; a rejection is a HostError. */
  request(method: string, params: JsonText | undefined, options: CallOptions): Promise<Answer> {
    try {
      if (params !== undefined) checkParams(params);
      const token = this.#tokenFor(options);
      const { relay } = options;
      const own = relay ? withMembers(params, relay.members) : params;
      const text = this.#meta || token !== undefined || relay?.meta ? this.#splice(own, token, relay) : own;
      return this.#send(method, text, options, token, this.#mirror?.headersOf(method, params));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Calls a tool. Arguments given as text are checked to be one JSON object and passed on as they are. */
  callTool(name: string, args: ToolArguments | undefined, options: CallOptions): Promise<Answer> {
    try {
      return this.#callChecked(name, argumentsText(args), options);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * As `callTool`, for arguments that were checked to be one JSON object. The outcome is told once, in the tick it comes in
   * where nothing stands in between.
   */
  askTool(name: string, args: JsonText, options: CallOptions, done: (outcome: Answer | Error) => void): void {
    try {
      if (this.#isHttp) return void this.#callChecked(name, args, options).then(done, done);
      const params = this.#callParams(name, args, this.#tokenFor(options), options.relay);
      this.#peer.ask('tools/call', params, options, done);
    } catch (error) {
      done(error as Error);
    }
  }

  #callChecked(name: string, args: JsonText | undefined, options: CallOptions): Promise<Answer> {
    const sent = this.#sendCall(name, args, options);
    return this.#mirror ? this.#orMirrored(this.#mirror, sent, name, args, options) : sent;
  }

  /** When the server refuses a call for its headers, the tools are listed again and the call is sent once more. */
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
    // Without the relayed params and handlers of the call: the list is our own request.
    const { deadlineAtMs, signal } = options;
    await this.list('tools/list', { deadlineAtMs, signal });
    return this.#sendCall(name, args, options);
  }

  /** The whole list, every item raw. A server that does not offer it has an empty one. */
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
   * Asks for a sign of life: `ping`, or `server/discover` where there is no ping. Any answer is one, a refusal too.
   * `gateway`: the result for 502, 503 and 504, which a proxy sends while the server behind it is away.
   */
  async probe(deadlineAtMs: number, gateway: 'alive' | 'silent' = 'alive'): Promise<ProbeResult> {
    const unread = this.#peer.unread();
    this.#probes++;
    try {
      await this.request(this.#era.livenessMethod, undefined, { deadlineAtMs });
      return 'alive';
    } catch (error) {
      if (!isHostError(error)) return 'unasked';
      if (gatewayStatuses.has(error.details.httpStatus)) return gateway;
      // Any answer is one, also one that cannot be read.
      if (error.details.httpStatus !== undefined || error.details.phase === 'answered') return 'alive';
      const isOurs = error.code === 'overloaded' || error.details.phase === 'queued';
      if (!isOurs || error.code === 'connect_failed') return 'silent';
      // Over HTTP it may have waited for a place. A pipe waits for its reader alone: one that has taken nothing all this time,
      // not even of what was there before, will not get to the question.
      const isPipe = !this.#isHttp && this.channel.kind !== 'http-sse';
      const isStuck =
        error.code === 'timeout' && unread.every(({ phase }) => phase === 'queued' || phase === 'writing');
      return isPipe && isStuck ? 'silent' : 'unasked';
    } finally {
      this.#probes--;
    }
  }

  /** The server refused the standalone stream of a legacy HTTP session. */
  sessionDoubted(): void {
    this.#httpSession?.doubted();
  }

  /** Requests wait unsent and nothing moves. The same `activity` as the last time: nothing has moved since. */
  stalled(activity: number): void {
    // A server that works on a call may be silent for as long as the call may take.
    if (this.#peer.isAtWork) return;
    // The server answered the check, and still nothing is sent: the fault is in this channel, so it is replaced.
    if (activity === this.#stalledActivity) return void this.#peer.abandon(this.#stuck());
    this.#stalledActivity = activity;
    this.#checkOrEnd();
  }

  /** Resolves when nothing is owed, at the latest after `withinMs`. Undefined: nothing is owed now. */
  drain(withinMs: number): Promise<void> | undefined {
    const { clock } = this.#parts;
    if (this.#peer.owed === 0) return undefined;
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
    await this.#peer.close();
  }

  // --- sending

  /** Writes the params of a call in one go: what we build ourselves needs no splicing. */
  #sendCall(name: string, args: JsonText | undefined, options: CallOptions): Promise<Answer> {
    const token = this.#tokenFor(options);
    const params = this.#callParams(name, args, token, options.relay);
    return this.#send('tools/call', params, options, token, this.#mirror?.headersOfCall(name, args));
  }

  #callParams(name: string, args: JsonText | undefined, token: number | undefined, relay: RelayedParams | undefined) {
    return callParams(name, args, metaMembers(this.#meta, token, relay), relay?.members);
  }

  #send(
    method: string,
    params: JsonText | undefined,
    options: CallOptions,
    token: number | undefined,
    http: HttpFacts | undefined,
  ): Promise<Answer> {
    const { deadlineAtMs, signal, onProgress, extend, client, onServerRequest, onServerNotification } = options;
    const { isStanding } = options;
    // Written out: a copy of all members would cost more than the rest of this, and the time of day is not for a later tick.
    const own: RequestOptions = {
      deadlineAtMs,
      signal,
      onProgress,
      extend,
      client,
      onServerRequest,
      onServerNotification,
      isStanding,
      http,
    };
    return this.#httpSession
      ? this.#httpSession.send(method, params, own, token)
      : this.#peer.request(method, params, own);
  }

  /** No request can be sent: the server becomes suspect and is probed at once. Without an answer the connection is ended. */
  #checkOrEnd(): void {
    const { clock, handlers } = this.#parts;
    if (this.#peer.isAtWork) return;
    handlers?.missed?.();
    void this.probe(clock.nowMs() + stallCheckMs).then((result) => {
      if (result === 'alive') handlers?.answered?.();
      else if (!this.#peer.isAtWork) void this.#peer.abandon(this.#stuck());
    });
  }

  #stuck(): HostError {
    return new HostError('transport', `server '${this.server}': no request could be sent to it any more`, {
      server: this.server,
      reason: 'stalled',
      hint: 'the connection is opened again; if this repeats, look at what the server does with its connections',
    });
  }

  #tokenFor({ onProgress, extend }: CallOptions): number | undefined {
    return onProgress || extend ? this.#peer.nextId : undefined;
  }

  #splice(params: JsonText | undefined, token: number | undefined, relay: RelayedParams | undefined): Buffer {
    const bytes = params === undefined ? undefined : toBuffer(params);
    return spliceMeta(bytes, metaEdits(this.#meta, token, relay));
  }

  #unresponsive(misses: number): HostError {
    return new HostError('transport', `server '${this.server}' runs but answered none of ${misses} signs of life`, {
      server: this.server,
      reason: 'unresponsive',
      execution: 'uncertain',
      hint: 'restart it; if this repeats, look at its stderr or allow its calls more time',
    });
  }
}

const emptyPage = Buffer.from('{}');
const noTools: ReadonlyMap<string, string> = new Map();
const gatewayStatuses: ReadonlySet<number | undefined> = new Set([502, 503, 504]);

/** An object becomes text here and needs no check; text is checked, or it could close our bracket and go on. */
function argumentsText(args: ToolArguments | undefined): JsonText | undefined {
  if (args === undefined) return undefined;
  if (typeof args !== 'string' && !(args instanceof Uint8Array)) return JSON.stringify(args);
  checkObject(args, 'arguments');
  return args;
}
