/**
 * The two words that everything in this folder shares: a client, and one request of it on its way.
 * Ingresses (http/, stdio/) make exchanges and write what they are told; the router answers them. Neither knows the other's
 * inside.
 *
 * Invariant: every exchange is ended exactly once, by `succeed` or `fail`; what is told to it afterwards is dropped, and so
 * is what is told to one whose client has gone.
 */
import type { UnroutedTemplates } from '../host/status.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Principal } from '../policy/operation.js';
import type { JsonText } from '../wire/frame.js';
import type { Answer } from '../wire/peer-interface.js';
import { RPC } from '../wire/rpc-codes.js';
import type { EndpointId } from './endpoint-id.js';

/** What a client says it can do, of which servers may make use. */
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
 * Whoever sends requests. Legacy: one session, from `initialize` to its end. Modern: made anew for each request, since
 * nothing may be inferred from the ones before.
 */
export interface Client {
  /** The legacy session, the stdio process, or what client-id.ts makes of key and header. Never shown to other clients. */
  readonly id: string;
  readonly principal: Principal;
  /** The name of its era (eras/eras.ts). */
  readonly era: string;
  readonly version: string;
  readonly endpoint: EndpointId;
  readonly capabilities: ClientCapabilities;
}

/** How a request fails in the protocol's own words. */
export interface RpcFailure {
  readonly code: number;
  readonly message: string;
  /** One JSON value. */
  readonly data?: JsonText;
  /** Of the HTTP answer where there is one and nothing of it was written yet; by the code when absent. */
  readonly httpStatus?: number;
}

export const invalidParams = (message: string): RpcFailure => ({ code: RPC.invalidParams, message });

export const isFailure = <T extends object>(made: T | RpcFailure): made is RpcFailure => 'code' in made;

/** What an ask costs its client at most. */
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
  /**
   * Aborts when nobody waits for the answer any more: cancelled by the client, its stream closed (modern), its session over.
   * A legacy client's lost stream is no cancel.
   */
  readonly signal: CancelSignal;
  /** Tells the client something that belongs to this request: progress, logs. */
  notify(method: string, params: JsonText): void;
  /**
   * Asks the client something on behalf of this request (legacy: elicitation, sampling, roots). Undefined where a client
   * cannot be asked: the modern era has no requests to clients. Rejects with a HostError when no answer comes.
   */
  readonly ask: Ask | undefined;
  /** `parts` are joined to the text of one result object. */
  succeed(...parts: readonly JsonText[]): void;
  fail(failure: RpcFailure): void;
}

/** A legacy session as long as it lives: where a client hears what belongs to none of its requests. */
export interface ClientSession extends Client {
  readonly signal: CancelSignal;
  notify(method: string, params: JsonText | undefined): void;
}

/** Who somebody that was let in is now: perhaps with another role; undefined when the key does not count any more. */
export type PrincipalNow = (principal: Principal) => Principal | undefined;

/** What ingresses need of the rest of the gateway. */
export interface Router {
  /** Whether there is such an endpoint for this principal; an unknown server or group is a 404 before anything is read. */
  hasEndpoint(endpoint: EndpointId, principal: Principal): boolean;
  /** Takes one request. Never throws; the exchange is ended now or later. */
  handle(exchange: Exchange): void;
  /** A legacy client finished its handshake; `session.signal` aborts at its end. */
  opened(session: ClientSession): void;
  /** A legacy session or stdio process ended without `opened`: its requests were served all the same, and leave nothing behind. */
  neverOpened?(client: Pick<Client, 'id'>): void;
  /** A notification of a client, other than `cancelled` and `initialized`, which are the ingress's own business. */
  notified(client: Client, method: string, params: Buffer | undefined): void;
  /** Modern header check: what `Mcp-Param-*` headers the schema of a tool asks for; undefined when none does or it is not known. */
  mirroredArguments(endpoint: EndpointId, principal: Principal, tool: string): readonly MirroredHeader[] | undefined;
  /** Resource templates of a server that are not routed at `/mcp`; undefined when all are. */
  unroutedOf?(server: string): UnroutedTemplates | undefined;
  /** Keys changed: whoever is told things that depend on the role is told by the one that counts now. */
  rekeyed?(now: PrincipalNow): void;
  /** The gateway ends: streams that would last for ever get their result. Before the ingresses close. */
  close?(): void;
}

/** An argument that a modern HTTP client repeats in the header `Mcp-Param-<name>`. */
export interface MirroredHeader {
  readonly name: string;
  /** Where the argument lies below `arguments`. */
  readonly path: readonly string[];
}
