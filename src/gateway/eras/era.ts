/**
 * The interface that each client era implements in its own folder.
 * Not here: the list of eras (eras.ts), the eras of servers (session/).
 */
import type { ServerResponse } from 'node:http';
import type { Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import type { Era, JsonText } from '../../wire/channel.js';
import type { Envelope } from '../../wire/envelope.js';
import { RPC } from '../../wire/methods.js';
import type { Answer } from '../../wire/peer-interface.js';
import type { Bridge } from '../bridge/bridged-request.js';
import type { Ask, Client, ClientSession, CurrentPrincipal, Exchange, RpcFailure } from '../exchange.js';
import type { Caller, IngressContext } from '../http/ingress-context.js';
import type { Refusal } from '../http/reply.js';

/** `capabilities` and `serverInfo` are JSON objects. */
export interface EndpointDescription {
  readonly capabilities: string;
  readonly serverInfo: string;
  readonly instructions: string | undefined;
}

export interface ResultContext {
  /** Era of the server. */
  readonly from: Era;
  readonly isCacheable: boolean;
  /** One JSON object. */
  readonly serverInfo: string;
  /** False: keys or roles exist, so the result of one caller must not be cached for others. */
  readonly mayBePublic: boolean;
}

export interface ClientEra {
  readonly name: string;
  /** The methods of this era among those marked `isEraSpecific` in wire/methods.ts. */
  readonly ownMethods: ReadonlySet<string>;
  /** `session`: a session without a level gets all logs. `request`: a request without a level gets no logs. */
  readonly logLevelSource: 'session' | 'request';
  readonly resourceNotFoundCode: number;
  /** Clients drop a whole list if the output schema of one tool is not of type object. */
  readonly needsObjectOutput: boolean;
  /** Whether a message belongs to this era. `version`: the header `MCP-Protocol-Version`. */
  claims(version: string | undefined, params: Buffer | undefined): boolean;
  /** The result of `initialize` or `server/discover`. */
  handshakeResult(client: Client, endpoint: EndpointDescription): string;
  /** The last members of a list result, each with a comma before it. */
  listMembers(serverInfo: string, ttlMs: number, isPublic: boolean): string;
  /** The tool result for a failed call. `facts` is one JSON member of `_meta`. */
  toolError(text: string, facts: string, serverInfo: string): string;
  translateResult(bytes: Buffer, context: ResultContext): readonly JsonText[] | RpcFailure;
  translateCode(code: number, from: Era, method: string): number;
  createBridge(parts: { readonly clock: Clock; readonly random: Random }): Bridge;
  openStdio(pipe: StdioPipe): StdioEra;
  /** The HTTP code is loaded on demand: a gateway that serves only stdio does not need it. */
  loadHttp(): Promise<(context: IngressContext) => HttpEra>;
}

/** One era at an HTTP listener. The HTTP methods return undefined for an accepted request. */
export interface HttpEra {
  /** Open sessions, or open streams in an era without sessions; for metrics. */
  readonly clients: number;
  readonly sessions?: number;
  /** Events stored for clients that reconnect. */
  readonly storedEvents?: { readonly events: number; readonly bytes: number };
  post(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined;
  /** Absent: this era has no batches. Each message has its own scanned envelope. */
  postBatch?(caller: Caller, messages: readonly Envelope[], response: ServerResponse): Refusal | undefined;
  /** Absent: this era has POST only. */
  get?(caller: Caller, response: ServerResponse): Refusal | undefined;
  delete?(caller: Caller, response: ServerResponse): Refusal | undefined;
  /** Called after keys have changed. */
  keysChanged?(now: CurrentPrincipal): void;
  /** Called when the listener stops: ends long-lived streams but no open requests. */
  endStreams?(): void;
  close?(): void;
}

export interface StdioPipe extends Pick<Client, 'id' | 'principal' | 'endpoint'> {
  readonly clock: Clock;
  /** Requests to the client get ids above this number. */
  readonly lastRequestId: number;
  /** Returns false if the pipe has ended. */
  readonly write: (parts: readonly JsonText[]) => boolean;
  writeNotification(text: readonly JsonText[]): void;
  /** Passes a session to the router. */
  opened(session: ClientSession): void;
}

export interface StdioEra {
  /** Number of open sessions; absent in an era without sessions. */
  readonly sessions?: number;
  /** Whether the client may send batches in its current session. */
  readonly hasBatches: boolean;
  clientOf(method: string, params: Buffer | undefined, isInBatch: boolean): Client | RpcFailure;
  /** Called for a notification of the client. It is not forwarded: each request carries the capabilities that its server needs. */
  notified?(method: string): void;
  /** Absent in an era whose clients receive no requests. */
  ask?(owner: Exchange, ...request: Parameters<Ask>): Promise<Answer>;
  /** Called for each answer of the client to a request of the gateway. */
  answered?(envelope: Envelope): void;
  /** Called before the answer of an exchange is written. */
  ending?(exchange: Exchange): void;
  /** Called after the answer of an exchange is written. */
  ended?(exchange: Exchange, hasSucceeded: boolean): void;
  /** Called when the client can send no more answers. */
  clientInputEnded?(): void;
  /** Called when the pipe has ended. True: the router had the session, and learns its end from the signal of the session. */
  end?(): boolean;
}

export const badResult = (what: string): RpcFailure => ({
  code: RPC.internalError,
  message: `the result of the server ${what}`,
});
