/**
 * One MCP server that can be spoken to: requests in its era's words, lists, liveness, and a legacy HTTP session that is
 * renewed when the server has forgotten it.
 * Not here: opening and negotiating (open-session.ts), deciding whether a failed call may be repeated (policy). The only
 * requests repeated here are those the server itself refused before doing anything: an unknown session, mismatched headers.
 */
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { HttpFacts } from '../wire/channel.js';
import type { JsonText } from '../wire/frame.js';
import { memberBytes, memberString } from '../wire/json-members.js';
import { spliceMeta } from '../wire/meta-splice.js';
import type { Answer, Peer, RequestOptions } from '../wire/peer.js';
import { readRpcError, resultOf } from './answers.js';
import type { ClientTexts } from './client-identity.js';
import { type ListMethod, readList, type ServerList } from './lists.js';
import { defaultLiveness, Liveness, type LivenessPlan } from './liveness.js';
import type { ServerFacts } from './negotiate.js';
import { headerValues, type MirroredArgument, scanToolHeaders } from './tool-headers.js';
import { METHOD_NOT_FOUND, MODERN_ERRORS } from './versions.js';

export interface CallOptions {
  /** On the session's clock. */
  readonly deadlineAtMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Params of each progress notification, raw. Asking for progress sends a token. */
  readonly onProgress?: (params: Buffer) => void;
  /** Each progress moves the deadline to at least now + this, up to `hardDeadlineAtMs`. */
  readonly extendMs?: number;
  readonly hardDeadlineAtMs?: number;
}

export interface SessionParts {
  readonly server: string;
  readonly peer: Peer;
  readonly clock: Clock;
  readonly texts: ClientTexts;
  readonly facts: ServerFacts;
  readonly clean: (text: string) => string;
  /** From the first byte of the start to the end of negotiation. */
  readonly startedInMs: number;
  readonly liveness?: LivenessPlan | undefined;
  /** Opens the legacy session again on the same channel. */
  readonly renew: () => Promise<ServerFacts>;
}

/** Requests whose name or URI a modern HTTP server expects in `Mcp-Name`. */
const namedBy: Readonly<Record<string, string>> = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
};

/** A list with nothing in it because the server does not offer it. */
const notOffered: ServerList = { items: [], pages: 0, ttlMs: 0, cacheScope: 'private' };

export class Session {
  readonly server: string;
  readonly startedInMs: number;
  /** Tools left out of the last list because their header annotations are not allowed, with the reason. */
  readonly droppedTools = new Map<string, string>();
  readonly #parts: SessionParts;
  readonly #peer: Peer;
  readonly #liveness: Liveness;
  readonly #mirrored = new Map<string, readonly MirroredArgument[]>();
  readonly #isModern: boolean;
  readonly #isHttp: boolean;
  /** Modern HTTP repeats names, and arguments that ask for it, in headers. */
  readonly #mirrors: boolean;
  #facts: ServerFacts;
  #nextToken = 1;
  #renewing: Promise<void> | undefined;
  #renewals = 0;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#peer = parts.peer;
    this.#facts = parts.facts;
    this.server = parts.server;
    this.startedInMs = parts.startedInMs;
    this.#isModern = parts.facts.era === 'modern';
    this.#isHttp = parts.peer.channel.kind === 'streamable-http';
    this.#mirrors = this.#isModern && this.#isHttp;
    this.#liveness = new Liveness(parts.liveness ?? defaultLiveness, parts.clock, {
      owed: () => this.#peer.owed,
      lastHeardAtMs: () => this.#peer.lastMessageAtMs,
      probe: (deadlineAtMs) => this.probe(deadlineAtMs),
      dead: (misses) => void this.#peer.abandon(this.#unresponsive(misses)),
    });
  }

  get facts(): ServerFacts {
    return this.#facts;
  }

  get peer(): Peer {
    return this.#peer;
  }

  /** Sends raw params in the server's era. An error the server answers with is an answer; a rejection is a HostError. */
  request(method: string, params: JsonText | undefined, options: CallOptions): Promise<Answer> {
    try {
      const token = this.#tokenFor(options);
      const text = this.#isModern || token !== undefined ? this.#splice(params, token) : params;
      return this.#send(method, text, options, token, this.#httpFacts(method, params));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Calls a tool with its arguments as JSON text; they are not parsed. */
  callTool(name: string, args: JsonText | undefined, options: CallOptions): Promise<Answer> {
    const sent = this.#sendCall(name, args, options);
    if (!this.#mirrors) return sent;
    return sent.then(async (answer) => {
      if (answer.kind !== 'error' || readRpcError(answer.bytes).code !== MODERN_ERRORS.headerMismatch) return answer;
      // The server refused before executing because its schema asks for other headers than we knew: learn them, ask once more.
      await this.list('tools/list', options);
      return this.#sendCall(name, args, options);
    });
  }

  /** The whole list, every item raw. A server that does not offer it has an empty one. */
  async list(method: ListMethod, options: CallOptions): Promise<ServerList> {
    let missing = false;
    const list = await readList(this.server, method, async (params) => {
      const answer = await this.request(method, params, options);
      missing = answer.kind === 'error' && readRpcError(answer.bytes).code === METHOD_NOT_FOUND;
      return missing ? emptyPage : resultOf(answer, this.server, method, this.#parts.clean);
    });
    if (missing) return notOffered;
    return method === 'tools/list' && this.#mirrors ? this.#learnHeaders(list) : list;
  }

  /** Asks for a sign of life: `ping`, or `server/discover` where there is no ping. Any answer is one. */
  async probe(deadlineAtMs: number): Promise<void> {
    await this.request(this.#isModern ? 'server/discover' : 'ping', undefined, { deadlineAtMs });
  }

  async close(): Promise<void> {
    this.#liveness.stop();
    await this.#peer.close();
  }

  // --- sending

  /** Writes the params of a call in one go: what we build ourselves needs no splicing. */
  #sendCall(name: string, args: JsonText | undefined, options: CallOptions): Promise<Answer> {
    const token = this.#tokenFor(options);
    const params = callParams(name, args, this.#metaMembers(token));
    return this.#send('tools/call', params, options, token, this.#mirrors ? this.#callFacts(name, args) : undefined);
  }

  /** The members of `_meta` this request needs, as JSON text; empty for none. */
  #metaMembers(token: number | undefined): string {
    const envelope = this.#isModern ? this.#parts.texts.metaMembers : '';
    if (token === undefined) return envelope;
    return envelope === '' ? `"progressToken":${token}` : `${envelope},"progressToken":${token}`;
  }

  #send(
    method: string,
    params: JsonText | undefined,
    options: CallOptions,
    token: number | undefined,
    http: HttpFacts | undefined,
  ): Promise<Answer> {
    this.#liveness.owing();
    const request: RequestOptions = { deadlineAtMs: options.deadlineAtMs, signal: options.signal, http };
    const withProgress = token === undefined ? request : { ...request, progress: { ...options, token } };
    const renewals = this.#renewals;
    const sent = this.#peer.request(method, params, withProgress);
    if (!this.#isHttp || this.#isModern) return sent;
    return sent.catch(async (error: unknown) => {
      if (!isHostError(error) || error.details.reason !== 'session_expired') throw error;
      await this.#renew(renewals);
      return this.#peer.request(method, params, withProgress);
    });
  }

  #tokenFor({ onProgress, extendMs }: CallOptions): number | undefined {
    return onProgress || extendMs !== undefined ? this.#nextToken++ : undefined;
  }

  #splice(params: JsonText | undefined, token: number | undefined): Buffer {
    const bytes = params === undefined ? undefined : toBuffer(params);
    const edits = this.#isModern ? this.#parts.texts.metaEdits : [];
    return spliceMeta(bytes, token === undefined ? edits : [...edits, ['progressToken', String(token)]]);
  }

  #httpFacts(method: string, params: JsonText | undefined): HttpFacts | undefined {
    const member = this.#mirrors ? namedBy[method] : undefined;
    if (member === undefined || params === undefined) return undefined;
    const bytes = toBuffer(params);
    const name = memberString(bytes, member);
    if (name === undefined) return undefined;
    return method === 'tools/call' ? this.#callFacts(name, memberBytes(bytes, 'arguments')) : { name };
  }

  #callFacts(name: string, args: JsonText | undefined): HttpFacts {
    const mirrored = this.#mirrored.get(name);
    if (!mirrored?.length || args === undefined) return { name };
    return { name, params: headerValues(mirrored, toBuffer(args)) };
  }

  #learnHeaders(list: ServerList): ServerList {
    this.#mirrored.clear();
    this.droppedTools.clear();
    const items = list.items.filter(({ key, raw }) => {
      const scan = scanToolHeaders(raw);
      if (scan.ok) this.#mirrored.set(key, scan.mirrored);
      else this.droppedTools.set(key, scan.reason);
      return scan.ok;
    });
    return { ...list, items };
  }

  // --- staying connected

  /** Single-flight: everyone whose request was refused for the same lost session waits for one renewal. */
  #renew(seenRenewals: number): Promise<void> {
    if (seenRenewals !== this.#renewals) return Promise.resolve();
    this.#renewing ??= this.#parts
      .renew()
      .then((facts) => {
        this.#facts = facts;
        this.#renewals++;
      })
      .finally(() => {
        this.#renewing = undefined;
      });
    return this.#renewing;
  }

  #unresponsive(misses: number): HostError {
    return new HostError('transport', `server '${this.server}' runs but answered none of ${misses} signs of life`, {
      server: this.server,
      reason: 'unresponsive',
      execution: 'uncertain',
      hint: 'it is restarted; if this repeats, look at its stderr or raise its call timeout',
    });
  }
}

const emptyPage = Buffer.from('{}');

const toBuffer = (text: JsonText): Buffer =>
  typeof text === 'string' ? Buffer.from(text) : Buffer.from(text.buffer, text.byteOffset, text.byteLength);

function callParams(name: string, args: JsonText | undefined, meta: string): JsonText {
  const start = meta === '' ? `{"name":${JSON.stringify(name)}` : `{"_meta":{${meta}},"name":${JSON.stringify(name)}`;
  if (args === undefined) return `${start}}`;
  if (typeof args === 'string') return `${start},"arguments":${args}}`;
  return Buffer.concat([Buffer.from(`${start},"arguments":`), args, closingBrace]);
}

const closingBrace = Buffer.from('}');
