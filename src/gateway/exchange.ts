/**
 * The types that the whole gateway shares: a client, and an exchange, which is one client request until its answer.
 * Ingresses (http/, stdio/) create exchanges and write their answers; the router answers them.
 * Invariant: `succeed` or `fail` ends every exchange once. Later calls are ignored, also after the client has disconnected.
 */
import type { UnroutedTemplates } from '../host/status.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Principal } from '../policy/operation.js';
import type { JsonText } from '../wire/frame.js';
import type { Answer } from '../wire/peer-interface.js';
import { RPC } from '../wire/rpc-codes.js';
import type { EndpointId } from './endpoint-id.js';

export interface ClientCapabilities {
  /** Original bytes of the capabilities object. */
  readonly raw: Buffer;
  /** Elicitation by form. */
  readonly elicitation: boolean;
  /** Elicitation by URL, with or without the form. */
  readonly elicitationUrl: boolean;
  readonly sampling: boolean;
  readonly roots: boolean;
}

/** The sender of requests. A legacy client is one session; a modern client is created for each request. */
export interface Client {
  /** Id of the legacy session or stdio process, or the key with `Hostler-Client`. Other clients must not learn it. */
  readonly id: string;
  readonly principal: Principal;
  /** Name of the client's era (eras/eras.ts). */
  readonly era: string;
  readonly version: string;
  readonly endpoint: EndpointId;
  readonly capabilities: ClientCapabilities;
}

export interface RpcFailure {
  readonly code: number;
  readonly message: string;
  /** One JSON value. */
  readonly data?: JsonText;
  /** Status of the HTTP answer. Default: derived from `code`. */
  readonly httpStatus?: number;
}

export const invalidParams = (message: string): RpcFailure => ({ code: RPC.invalidParams, message });

export const isFailure = <T extends object>(made: T | RpcFailure): made is RpcFailure => 'code' in made;

export interface AskLimits {
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal;
}

export type Ask = (method: string, params: JsonText | undefined, limits: AskLimits) => Promise<Answer>;

export interface Exchange {
  readonly client: Client;
  /** JSON text of the request id as the client wrote it, with quotes. */
  readonly idText: string;
  readonly method: string;
  /** One JSON object; undefined if the request has no params. */
  readonly params: Buffer | undefined;
  /** Time of arrival on the host's clock. */
  readonly startedAtMs: number;
  /** Aborts when the client cancels, a modern client disconnects, or the session ends. A lost legacy stream does not abort. */
  readonly signal: CancelSignal;
  /** Sends progress or logs of this request. */
  notify(method: string, params: JsonText): void;
  /**
   * Sends a request to the client while this one is handled (elicitation, sampling, roots). Rejects with a HostError if no
   * answer arrives. Undefined: the client's era has no requests to clients.
   */
  readonly ask: Ask | undefined;
  /** The joined `parts` are the text of one result object. */
  succeed(...parts: readonly JsonText[]): void;
  fail(failure: RpcFailure): void;
}

/** An open legacy session. Its `notify` sends notifications outside of any request. */
export interface ClientSession extends Client {
  readonly signal: CancelSignal;
  notify(method: string, params: JsonText | undefined): void;
}

/** Returns the current principal of a key, whose role may have changed; undefined if the key was revoked. */
export type CurrentPrincipal = (principal: Principal) => Principal | undefined;

/** The router as ingresses see it. */
export interface Router {
  /** Whether the endpoint exists for this principal. HTTP calls it before it reads the body. */
  hasEndpoint(endpoint: EndpointId, principal: Principal): boolean;
  /** Never throws; ends the exchange now or later. */
  handle(exchange: Exchange): void;
  /** A legacy client finished its handshake. `session.signal` aborts when the session ends. */
  opened(session: ClientSession): void;
  /** A legacy session or stdio process ended without `opened`. The router drops the state of its requests. */
  endedBeforeOpen?(client: Pick<Client, 'id'>): void;
  /** A client sent a notification. Ingresses handle `cancelled` and `initialized` themselves. */
  notified(client: Client, method: string, params: Buffer | undefined): void;
  /** The `Mcp-Param-*` headers that the schema of a tool requires; undefined if there are none or the tool is unknown. */
  mirroredArguments(endpoint: EndpointId, principal: Principal, tool: string): readonly MirroredHeader[] | undefined;
  /** Resource templates of a server that `/mcp` does not route; undefined if it routes all. */
  unroutedOf?(server: string): UnroutedTemplates | undefined;
  /** Applies the current roles to notifications after keys changed. */
  keysChanged?(now: CurrentPrincipal): void;
  /** Gives listen streams their result. The gateway calls it before it closes the ingresses. */
  close?(): void;
}

/** An argument that a modern HTTP client repeats in the header `Mcp-Param-<name>`. */
export interface MirroredHeader {
  readonly name: string;
  /** Member names from `arguments` down to the argument. */
  readonly path: readonly string[];
}
