/**
 * The types that the whole gateway shares: a client, and an exchange, which is one client request until its answer.
 * Ingresses (http/, stdio/) create exchanges and write their answers; the router answers them.
 * Invariant: `succeed` or `fail` ends every exchange once. Later calls are ignored, also after the client has disconnected.
 */
import type { UnroutedTemplates } from '../host/status.js';
import { setBounded } from '../kernel/bounded-map.js';
import { Cancellation, type CancelSignal } from '../kernel/cancel-signal.js';
import type { Principal } from '../policy/operation.js';
import type { JsonText } from '../wire/channel.js';
import { RPC } from '../wire/methods.js';
import type { Answer } from '../wire/peer-interface.js';

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
  /**
   * Legacy: id of the session. Stdio: id of the process. Modern HTTP: id of the key, with the header `Hostler-Client` if it is sent.
   * Other clients must not learn this id.
   */
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
  /** The `Mcp-Param-*` headers that the schema of a tool requires; undefined if there are none or the tool is unknown. */
  mirroredArguments(endpoint: EndpointId, principal: Principal, tool: string): readonly MirroredHeader[] | undefined;
  /** Resource templates of a server that `/mcp` does not route; undefined if it routes all. */
  unroutedOf?(server: string): UnroutedTemplates | undefined;
  /** Applies the current roles to notifications after keys changed. */
  keysChanged?(now: CurrentPrincipal): void;
  /** Ends each listen stream with its result. Called before the ingresses close. */
  close?(): void;
}

/** An argument that a modern HTTP client repeats in the header `Mcp-Param-<name>`. */
export interface MirroredHeader {
  readonly name: string;
  /** Member names from `arguments` down to the argument. */
  readonly path: readonly string[];
}

export type ReceivedRequest = Pick<Exchange, 'idText' | 'method' | 'params' | 'startedAtMs'>;

/**
 * The part of an exchange that HTTP and stdio share in every era: its request, its state and its cancel signal.
 * Subclasses send the answer (`write`). An answer or a cancel ends an exchange exactly once.
 */
export abstract class ExchangeBase<C extends Client = Client> implements Exchange {
  client: C;
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly startedAtMs: number;
  abstract readonly ask: Exchange['ask'];
  #abort: Cancellation | undefined;
  #state: 'open' | 'succeeded' | 'failed' | 'cancelled' = 'open';

  constructor(client: C, { idText, method, params, startedAtMs }: ReceivedRequest) {
    this.client = client;
    this.idText = idText;
    this.method = method;
    this.params = params;
    this.startedAtMs = startedAtMs;
  }

  /** Created on first use: most requests end before a handler needs the signal. */
  get signal(): CancelSignal {
    this.#abort ??= new Cancellation();
    if (this.#state === 'cancelled') this.#abort.abort();
    return this.#abort;
  }

  get isOpen(): boolean {
    return this.#state === 'open';
  }

  get hasSucceeded(): boolean {
    return this.#state === 'succeeded';
  }

  notify(method: string, params: JsonText): void {
    if (this.isOpen) this.writeNotification(notificationText(method, params));
  }

  succeed(...parts: readonly JsonText[]): void {
    this.#end('succeeded', resultText(this.idText, parts), undefined);
  }

  fail(failure: RpcFailure): void {
    this.#end('failed', failureText(this.idText, failure), failure);
  }

  /** Ends the exchange before its handler does. The client gets `failure`, or no answer if it is undefined. */
  cancel(failure?: RpcFailure): void {
    if (!this.isOpen) return;
    this.#end('cancelled', failure && failureText(this.idText, failure), failure);
    this.#abort?.abort();
  }

  /** Aborts the signal but leaves the exchange open: the handler may still answer. */
  protected abort(): void {
    this.#abort?.abort();
  }

  #end(state: 'succeeded' | 'failed' | 'cancelled', answer: JsonText[] | undefined, failure?: RpcFailure): void {
    if (this.#state !== 'open') return;
    this.#state = state;
    this.write(answer, failure);
  }

  protected abstract writeNotification(text: JsonText[]): void;

  /** Called once, at the end. Without `answer` the client gets none. A cancel without an answer has no `failure` either. */
  protected abstract write(answer: JsonText[] | undefined, failure: RpcFailure | undefined): void;
}

/** The endpoint of a client: all servers, one server, or a named group (`/mcp`, `/mcp/<server>`, `/mcp/@<group>`). */
export type EndpointId =
  | { readonly kind: 'all' }
  | { readonly kind: 'server'; readonly server: string }
  | { readonly kind: 'group'; readonly group: string };

const prefix = '/mcp';

/** Cache of recent paths. Views compare endpoints by identity, so one path should give one object. */
const parsed = new Map<string, EndpointId>();
const parsedMax = 64;
const parsedCharsMax = 256;

/** Returns undefined for a path outside `/mcp`. Names are not decoded: no server name has a slash or a percent sign. */
export function parseEndpointPath(path: string): EndpointId | undefined {
  const known = parsed.get(path);
  if (known) return known;
  const endpoint = read(path);
  if (endpoint && path.length <= parsedCharsMax) setBounded(parsed, path, endpoint, parsedMax);
  return endpoint;
}

function read(path: string): EndpointId | undefined {
  if (path === prefix || path === `${prefix}/`) return { kind: 'all' };
  if (!path.startsWith(`${prefix}/`)) return undefined;
  const name = path.slice(prefix.length + 1);
  if (name.includes('/') || name === '' || name === '@') return undefined;
  return name.startsWith('@') ? { kind: 'group', group: name.slice(1) } : { kind: 'server', server: name };
}

export const endpointKey = (endpoint: EndpointId): string =>
  endpoint.kind === 'all' ? '' : endpoint.kind === 'server' ? endpoint.server : `@${endpoint.group}`;

const tail = '}';

/** JSON-RPC messages are lists of parts, so that the bytes of a server are not copied. */
export const resultText = (idText: string, parts: readonly JsonText[]): JsonText[] => [
  `{"jsonrpc":"2.0","id":${idText},"result":`,
  ...parts,
  tail,
];

/** `idText` undefined: the id could not be read, and is omitted. MCP allows that, and MCP clients refuse an id of `null`. */
export const failureText = (idText: string | undefined, { code, message, data }: RpcFailure): JsonText[] => {
  const id = idText === undefined ? '' : `"id":${idText},`;
  const head = `{"jsonrpc":"2.0",${id}"error":{"code":${code},"message":${JSON.stringify(message)}`;
  return data === undefined ? [`${head}}}`] : [`${head},"data":`, data, '}}'];
};

export const notificationText = (method: string, params: JsonText | undefined): JsonText[] => {
  const head = `{"jsonrpc":"2.0","method":${JSON.stringify(method)}`;
  return params === undefined ? [head, tail] : [`${head},"params":`, params, tail];
};

export const requestText = (id: number, method: string, params: JsonText | undefined): JsonText[] => {
  const head = `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)}`;
  return params === undefined ? [head, tail] : [`${head},"params":`, params, tail];
};
