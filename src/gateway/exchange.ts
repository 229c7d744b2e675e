/**
 * The types that all of the gateway shares: a client, and an exchange, which is one request of a client until its answer.
 * Ingresses (http/, stdio/) create exchanges and write their answers; the router answers them.
 * Invariant: every exchange is ended once, by `succeed` or `fail`; later calls are dropped, also after the client is gone.
 */
import type { UnroutedTemplates } from '../host/status.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Principal } from '../policy/operation.js';
import type { JsonText } from '../wire/frame.js';
import type { Answer } from '../wire/peer-interface.js';
import { RPC } from '../wire/rpc-codes.js';
import type { EndpointId } from './endpoint-id.js';

/** The capabilities that a client declares. */
export interface ClientCapabilities {
  /** The object as the client wrote it. */
  readonly raw: Buffer;
  /** By form. */
  readonly elicitation: boolean;
  /** By URL: beside the form, or alone. */
  readonly elicitationUrl: boolean;
  readonly sampling: boolean;
  readonly roots: boolean;
}

/**
 * The sender of requests. Legacy: one session, from `initialize` to its end. Modern: created for each request.
 */
export interface Client {
  /** The legacy session, the stdio process, or key and `Hostler-Client`. Secret from other clients. */
  readonly id: string;
  readonly principal: Principal;
  /** The name of its era (eras/eras.ts). */
  readonly era: string;
  readonly version: string;
  readonly endpoint: EndpointId;
  readonly capabilities: ClientCapabilities;
}

/** A JSON-RPC error. */
export interface RpcFailure {
  readonly code: number;
  readonly message: string;
  /** One JSON value. */
  readonly data?: JsonText;
  /** Status of the HTTP answer; absent: by the code. */
  readonly httpStatus?: number;
}

export const invalidParams = (message: string): RpcFailure => ({ code: RPC.invalidParams, message });

export const isFailure = <T extends object>(made: T | RpcFailure): made is RpcFailure => 'code' in made;

/** Limits of a request to the client. */
export interface AskLimits {
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal;
}

export type Ask = (method: string, params: JsonText | undefined, limits: AskLimits) => Promise<Answer>;

export interface Exchange {
  readonly client: Client;
  /** As the client wrote it, quotes included. */
  readonly idText: string;
  readonly method: string;
  /** One JSON object; undefined when the request has none. */
  readonly params: Buffer | undefined;
  /** When it came in, on the host's clock. */
  readonly startedAtMs: number;
  /** Aborts when the client cancels, closes its response (modern), or its session ends. A lost legacy stream is no cancel. */
  readonly signal: CancelSignal;
  /** Sends a notification that belongs to this request: progress, logs. */
  notify(method: string, params: JsonText): void;
  /**
   * Sends a request to the client on behalf of this one (elicitation, sampling, roots). Undefined: its era has no such requests.
   * Rejects with a HostError when no answer comes.
   */
  readonly ask: Ask | undefined;
  /** `parts` are joined to the text of one result object. */
  succeed(...parts: readonly JsonText[]): void;
  fail(failure: RpcFailure): void;
}

/** An open legacy session: takes notifications that belong to none of its requests. */
export interface ClientSession extends Client {
  readonly signal: CancelSignal;
  notify(method: string, params: JsonText | undefined): void;
}

/** The current principal of a key, perhaps with another role; undefined: the key was revoked. */
export type PrincipalNow = (principal: Principal) => Principal | undefined;

/** What ingresses need of the router. */
export interface Router {
  /** Whether this principal has such an endpoint. Checked before the request is read. */
  hasEndpoint(endpoint: EndpointId, principal: Principal): boolean;
  /** Takes one request. Never throws; the exchange is ended now or later. */
  handle(exchange: Exchange): void;
  /** A legacy client finished its handshake; `session.signal` aborts at its end. */
  opened(session: ClientSession): void;
  /** A legacy session or stdio process ended without `opened`. Its requests were served: their state is dropped. */
  neverOpened?(client: Pick<Client, 'id'>): void;
  /** A notification of a client, other than `cancelled` and `initialized`, which ingresses handle. */
  notified(client: Client, method: string, params: Buffer | undefined): void;
  /** The `Mcp-Param-*` headers that the schema of a tool requires; undefined: none, or the tool is unknown. */
  mirroredArguments(endpoint: EndpointId, principal: Principal, tool: string): readonly MirroredHeader[] | undefined;
  /** Resource templates of a server that are not routed at `/mcp`; undefined when all are. */
  unroutedOf?(server: string): UnroutedTemplates | undefined;
  /** Keys changed: notifications follow the current roles. */
  rekeyed?(now: PrincipalNow): void;
  /** The gateway closes: endless streams get their result, before the ingresses close. */
  close?(): void;
}

/** An argument that a modern HTTP client repeats in the header `Mcp-Param-<name>`. */
export interface MirroredHeader {
  readonly name: string;
  /** Where the argument lies below `arguments`. */
  readonly path: readonly string[];
}
