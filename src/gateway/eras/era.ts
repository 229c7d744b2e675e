/**
 * A protocol era as clients see it: everything in which one group of protocol revisions differs from another at the gateway.
 * Each era implements this interface in a folder of its own and is listed in eras.ts.
 * Not here: the eras of servers (session/).
 */
import type { ServerResponse } from 'node:http';
import type { Clock } from '../../kernel/clock.js';
import type { Random } from '../../kernel/random.js';
import type { Era } from '../../wire/channel.js';
import type { Envelope } from '../../wire/envelope.js';
import type { JsonText } from '../../wire/frame.js';
import type { Answer } from '../../wire/peer-interface.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { Bridge } from '../bridge/bridged-request.js';
import type { Ask, Client, ClientSession, Exchange, PrincipalNow, RpcFailure } from '../exchange.js';
import type { Caller, IngressContext } from '../http/ingress-context.js';
import type { Refusal } from '../http/refusals.js';

/** The self-description of an endpoint. */
export interface EndpointDescription {
  /** One JSON object. */
  readonly capabilities: string;
  /** One JSON object. */
  readonly serverInfo: string;
  readonly instructions: string | undefined;
}

/** The server's side of a result, and what the client's era has to know of it. */
export interface ResultContext {
  /** The era of the server that gave the result. */
  readonly from: Era;
  readonly isCacheable: boolean;
  /** One JSON object. */
  readonly serverInfo: string;
  /** False: there are keys or roles, so one caller's result must not be cached for others. */
  readonly mayBePublic: boolean;
}

export interface ClientEra {
  readonly name: string;
  /** Those methods marked `isEraSpecific` in wire/methods.ts that this era has. */
  readonly ownMethods: ReadonlySet<string>;
  /** `session`: clients set a log level once, and get all logs without one. `request`: in each request, and no logs without one. */
  readonly logLevelSource: 'session' | 'request';
  /** Code of the error for a resource that does not exist. */
  readonly resourceNotFoundCode: number;
  /** Whether a message is of this era, by the header `MCP-Protocol-Version` or its params. Eras are tried in the order of eras.ts. */
  claims(version: string | undefined, params: Buffer | undefined): boolean;
  /** The answer to the method that opens a conversation: one result object. */
  handshakeResult(client: Client, endpoint: EndpointDescription): string;
  /** The members that end a list result, each with a comma before it. */
  listMembers(serverInfo: string, ttlMs: number, isPublic: boolean): string;
  /** A tool result for a failed call. `facts` is one JSON member of `_meta`. */
  toolError(text: string, facts: string, serverInfo: string): string;
  /** The parts of one result object in this era's form, or why there is none. */
  translateResult(bytes: Buffer, context: ResultContext): readonly JsonText[] | RpcFailure;
  /** The code of a server's error in this era. */
  translateCode(code: number, from: Era, method: string): number;
  createBridge(parts: { readonly clock: Clock; readonly random: Random }): Bridge;
  openStdio(pipe: StdioPipe): StdioEra;
  /** Loaded on demand: a gateway that serves stdio alone does not need HTTP. */
  loadHttp(): Promise<(context: IngressContext) => HttpEra>;
}

/** One era at an HTTP listener. Each method returns why the request is refused, or undefined once it is taken. */
export interface HttpEra {
  /** For metrics: open sessions, or open streams where the era has no sessions. */
  readonly clients: number;
  readonly sessions?: number;
  /** Events stored for clients that reconnect. */
  readonly storedEvents?: { readonly events: number; readonly bytes: number };
  post(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined;
  /** Absent: this era has no batches. Each message was scanned into an envelope of its own. */
  postBatch?(caller: Caller, messages: readonly Envelope[], response: ServerResponse): Refusal | undefined;
  /** Absent: this era has POST only. */
  get?(caller: Caller, response: ServerResponse): Refusal | undefined;
  delete?(caller: Caller, response: ServerResponse): Refusal | undefined;
  /** Keys changed. */
  rekeyed?(now: PrincipalNow): void;
  /** The listener stops: streams that last end, open requests go on. */
  endStreams?(): void;
  close?(): void;
}

/** What an era uses of a pipe. */
export interface StdioPipe extends Pick<Client, 'id' | 'principal' | 'endpoint'> {
  readonly clock: Clock;
  /** False: the pipe has ended. */
  readonly write: (parts: readonly JsonText[]) => boolean;
  writeNotification(text: readonly JsonText[]): void;
  /** Hands a session to the router. */
  opened(session: ClientSession): void;
}

/** One era on one pipe. */
export interface StdioEra {
  /** Open sessions; absent where the era has none. */
  readonly sessions?: number;
  /** Whether the client may send batches now. */
  readonly hasBatches: boolean;
  /** The client of a request, or why it has none. */
  clientOf(method: string, params: Buffer | undefined, isInBatch: boolean): Client | RpcFailure;
  /** The client of a notification for the router; undefined: the era handled it, or it has no client. */
  notified(method: string, params: Buffer | undefined): Client | undefined;
  /** Absent where clients take no requests. */
  ask?(owner: Exchange, ...request: Parameters<Ask>): Promise<Answer>;
  /** The client answered a request of ours. */
  answered?(envelope: Envelope): void;
  /** Before and after the answer of an exchange is written. */
  ending?(exchange: Exchange): void;
  ended?(exchange: Exchange, hasSucceeded: boolean): void;
  /** The client sends no more answers. */
  stopAsking?(): void;
  /** The pipe has ended. True: the router learns of it by the signal of a session. */
  end?(): boolean;
}

export const badResult = (what: string): RpcFailure => ({
  code: RPC.internalError,
  message: `the result of the server ${what}`,
});
