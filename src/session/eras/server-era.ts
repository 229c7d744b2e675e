/**
 * The differences between protocol eras, towards a server. Each folder here implements one era; eras.ts lists them.
 * Not here: clients of the gateway (gateway/eras/).
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { Era, EraRules, HttpFacts, JsonText } from '../../wire/channel.js';
import { memberBytes } from '../../wire/json-members.js';
import type { Peer } from '../../wire/peer.js';
import type { Answer, RequestOptions } from '../../wire/peer-interface.js';
import type { ServerList } from '../lists.js';
import type { RequestMeta } from '../request-params.js';

export interface ServerEra extends EraRules {
  /** Newest first. */
  readonly versions: readonly string[];
  /** Sends the opening request of this era. Undefined: the server speaks another era. */
  open(opening: Opening): Promise<ServerFacts | undefined>;
  /** Called after the peer has adopted the era and version. */
  entered?(peer: Peer): void;
  /** Members that every request has in `_meta`. Undefined: none. */
  requestMeta(client: ClientIdentity): RequestMeta | undefined;
  /** A request without params that a live server answers at once. */
  readonly livenessMethod: string;
  /** The server reports changes only on a stream that Hostler opens with `subscriptions/listen`. */
  readonly hasListenStream: boolean;
  /** Servers of this era may support HTTP+SSE only. */
  readonly hasHttpSse: boolean;
  /** `session`: `logging/setLevel` sets the log level of the session. `request`: each request sets its level in `_meta`. */
  readonly logLevelSource: 'session' | 'request';
  /** A result may be `input_required`: the server then needs input from the caller. */
  readonly asksInResults: boolean;
  /** Error -32042 asks the user to visit an address. */
  readonly asksInErrors: boolean;
  /** A result states its kind in `resultType`, and how long it may be cached. */
  readonly typesResults: boolean;
  /** The era defines the error codes of MODERN_ERRORS, and none of the other codes that JSON-RPC reserves for implementations. */
  readonly reservesErrorCodes: boolean;
  /** HTTP: sends requests, and determines the meaning of a refusal. */
  newHttpSession(owner: HttpSessionOwner): HttpSession;
  /** Present if `mirrorsRequests`. */
  newMirror?(): RequestMirror;
}

export interface ClientIdentity {
  readonly name: string;
  readonly version: string;
  /** Features that Hostler offers to a server: elicitation, sampling, roots. Each is declared only if it has a handler. */
  readonly capabilities: Readonly<Record<string, unknown>>;
}

export interface Opening {
  readonly server: string;
  readonly peer: Peer;
  readonly client: ClientIdentity;
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
  readonly versions: readonly string[];
  /** Redacts and neutralises text of a server before an error quotes it. */
  readonly clean: (text: string) => string;
}

/** Declarations of the server, byte for byte. */
export interface ServerFacts {
  readonly era: Era;
  readonly version: string;
  /** Always a JSON object, even if the server sent another value. */
  readonly capabilities: Buffer;
  readonly serverInfo: Buffer | undefined;
  readonly instructions: string | undefined;
  /** Whole result of the request that opened the connection. */
  readonly raw: Buffer;
}

export interface HttpSession {
  /** `progressToken`: the token in the params, if there is one. */
  send(
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    progressToken: number | undefined,
  ): Promise<Answer>;
  /** Call it when the server refused the standalone stream. */
  sessionMaybeLost(): void;
  /** Like the method of `Peer`. Absent if a request may have to wait for a session. */
  requestWithCallback?(
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    done: (outcome: Answer | Error) => void,
  ): void;
  /** True: the server has lost the session, and a new one is not open yet. */
  readonly isLost?: boolean;
  /** Call it when the connection has ended. */
  close?(): void;
}

/** Result of checking a session or an era. `unanswered`: the server neither answered nor refused, so nothing is known. */
export type Verdict = 'known' | 'refused' | 'unanswered';

export interface HttpSessionOwner {
  readonly server: string;
  readonly peer: Peer;
  readonly clock: Clock;
  /** Opens a new session on the same channel: `initialize` and the steps after it. */
  open(): Promise<void>;
  /** Called when `initialize` was not answered for 10 s; meanwhile no other request can be sent. */
  onSlow(): void;
  /** Called when a new session is open, before a waiting request is sent. See `SessionHandlers.renewed`. */
  renewed(): (() => Promise<void> | undefined) | undefined;
  /** Called when a new session could not be opened. The renewal is tried again; `renewed` follows if it succeeds. */
  lost(): void;
  /** Sends the opening request of the era again, to see whether the server still speaks the era. */
  ask(deadlineAtMs: number): Promise<Verdict>;
  /**
   * The server refuses the connection as a whole: the connection ends, and the next one negotiates again. Resolves at the end
   * of the connection.
   */
  over(): Promise<void>;
}

/** Headers that repeat parts of a request, as the tool list of the server requires. */
export interface RequestMirror {
  /** Tools left out of the last list because their annotations are not allowed, with the reason. */
  readonly dropped: ReadonlyMap<string, string>;
  headersOf(method: string, params: JsonText | undefined): HttpFacts | undefined;
  headersOfCall(tool: string, args: JsonText | undefined): HttpFacts;
  /** Returns the list without the tools that cannot be called. */
  learn(tools: ServerList): Promise<ServerList>;
  /** True: the server refused a call because its headers did not match. */
  isMismatch(outcome: Answer | unknown): boolean;
}

/** Capabilities of a server; an empty object if the server sent another value. */
export function capabilitiesOf(result: Buffer): Buffer {
  const capabilities = memberBytes(result, 'capabilities');
  return capabilities?.[0] === 0x7b ? capabilities : Buffer.from('{}');
}

export const noCommonVersion = ({ server, versions }: Opening, what: string): HostError =>
  new HostError('protocol_error', `server '${server}' ${what}`, {
    server,
    reason: 'no_common_version',
    hint: `use a server that speaks one of the versions of Hostler: ${versions.join(', ')}`,
  });
