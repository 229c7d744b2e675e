/**
 * The request headers of each era, and the checks that keep a header from being anything but a header.
 * Modern (2026-07-28): every POST names its version, method and subject. Legacy: the version once it is agreed, and the
 * session id while there is one. Configured headers (credentials) go out with every request to the configured origin, and
 * so does the token that is current when the request is sent; it replaces a configured header of the same name.
 *
 * Invariant: nothing that a server or caller supplied reaches a header line unencoded unless it is plain visible ASCII.
 */
import { HostError } from '../../kernel/errors.js';
import type { Agreement, Era, HttpFacts, OutboundFrame } from '../../wire/channel.js';
import { encodeHeaderValue } from '../../wire/header-value.js';
import type { AuthToken, TokenSource } from './auth-token.js';

/** What `server/discover` is asked with before anything is agreed. */
const modernVersion = '2026-07-28';

const acceptBoth = 'application/json, text/event-stream';
/** Names that a server or a configuration made up are quoted this far. */
const fieldCharsMax = 200;
const sessionIdCharsMax = 1024;

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const configuredValue = /^[\x20-\x7e\x80-\xff\t]*$/;

/** The transport writes these itself, or they decide where the message ends. */
const RESERVED = new Set([
  'accept',
  'accept-encoding',
  'connection',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'last-event-id',
  'mcp-method',
  'mcp-name',
  'mcp-protocol-version',
  'mcp-session-id',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Alternating names and values, as undici takes them. */
export type HeaderList = string[];

/** Throws `invalid_spec` naming the field. */
export function configuredHeaders(server: string, headers: Readonly<Record<string, string>> = {}): HeaderList {
  const list: HeaderList = [];
  for (const [name, value] of Object.entries(headers)) {
    const field = `headers.${name}`.slice(0, fieldCharsMax);
    const wrong = (what: string) => new HostError('invalid_spec', `server '${server}': ${what}`, { server, field });
    if (!token.test(name)) throw wrong('a header name has characters that HTTP does not allow');
    if (RESERVED.has(name.toLowerCase())) throw wrong(`the header ${name} is written by Hostler itself`);
    // The value may be a secret: it is never quoted.
    if (typeof value !== 'string' || !configuredValue.test(value)) {
      throw wrong(`the value of the header ${name} has characters that HTTP does not allow`);
    }
    list.push(name.toLowerCase(), value.trim());
  }
  if (!list.includes('user-agent')) list.push('user-agent', 'hostler');
  return list;
}

/** A session id comes from the server and goes back in a header. */
export const isSessionId = (value: string): boolean =>
  value.length <= sessionIdCharsMax && /^[\x21-\x7e]+$/.test(value);

/** Builds the headers of each request from parts that change rarely. */
export class RequestHeaders {
  readonly #configured: HeaderList;
  readonly #tokens: TokenSource | undefined;
  #token: AuthToken | undefined;
  /** Configured headers and the token. */
  #own: HeaderList = [];
  #agreement: Agreement | undefined;
  #sessionId: string | undefined;
  #modern: HeaderList = [];
  #legacy: HeaderList = [];
  #initialize: HeaderList = [];

  constructor(configured: HeaderList, tokens?: TokenSource) {
    this.#configured = configured;
    this.#tokens = tokens;
    this.#token = tokens?.current();
    this.#rebuild();
  }

  /** What the last headers that were built are authorized with. */
  get token(): AuthToken | undefined {
    return this.#token;
  }

  get sessionId(): string | undefined {
    return this.#sessionId;
  }

  adopt(agreement: Agreement): void {
    this.#agreement = agreement;
    this.#rebuild();
  }

  holdSession(id: string | undefined): void {
    this.#sessionId = id;
    this.#rebuild();
  }

  /** The era a message belongs to: agreed, or before that told by the one method each era begins with. */
  eraOf(method: string | undefined): Era {
    if (method === 'initialize') return 'legacy';
    return this.#agreement?.era ?? (method === 'server/discover' ? 'modern' : 'legacy');
  }

  /** For a POST of this frame, whose facts were checked. */
  post(frame: OutboundFrame): HeaderList {
    this.#renew();
    if (frame.method === 'initialize') return this.#initialize;
    if (this.eraOf(frame.method) === 'legacy') return this.#legacy;
    const list = [...this.#modern];
    if (frame.method !== undefined) list.push('mcp-method', encodeHeaderValue(frame.method));
    if (frame.http?.name !== undefined) list.push('mcp-name', encodeHeaderValue(frame.http.name));
    for (const [name, value] of frame.http?.params ?? []) list.push(`mcp-param-${name}`, encodeHeaderValue(value));
    return list;
  }

  /** For a GET of an event stream. */
  stream(lastEventId: string | undefined): HeaderList {
    this.#renew();
    const list = this.#without('text/event-stream');
    if (lastEventId !== undefined) list.push('last-event-id', lastEventId);
    return list;
  }

  /** For the DELETE that ends a session. */
  end(): HeaderList {
    this.#renew();
    return this.#without('application/json');
  }

  #renew(): void {
    const token = this.#tokens?.current();
    if (token === this.#token) return;
    this.#token = token;
    this.#rebuild();
  }

  #rebuild(): void {
    this.#own = withToken(this.#configured, this.#token);
    const base = [
      ...['content-type', 'application/json', 'accept', acceptBoth, 'accept-encoding', 'identity'],
      ...this.#own,
    ];
    this.#modern = [...base, 'mcp-protocol-version', this.#version() ?? modernVersion];
    this.#legacy = [...base, ...this.#sessionParts()];
    this.#initialize = base;
  }

  /** The server had its say in the version, so it is encoded like everything else. */
  #version(): string | undefined {
    return this.#agreement === undefined ? undefined : encodeHeaderValue(this.#agreement.version);
  }

  #sessionParts(): HeaderList {
    const version = this.#version();
    return [
      ...(version === undefined ? [] : ['mcp-protocol-version', version]),
      ...(this.#sessionId === undefined ? [] : ['mcp-session-id', this.#sessionId]),
    ];
  }

  #without(accept: string): HeaderList {
    return ['accept', accept, 'accept-encoding', 'identity', ...this.#own, ...this.#sessionParts()];
  }
}

function withToken(configured: HeaderList, token: AuthToken | undefined): HeaderList {
  if (!token) return configured;
  const name = token.header[0].toLowerCase();
  const others = configured.filter((_, at) => configured[at - (at % 2)] !== name);
  return [...others, name, token.header[1]];
}

/** Why a token cannot stand in a request; its value is never quoted. */
export function checkToken(server: string, { header: [name, value] }: AuthToken): HostError | undefined {
  try {
    configuredHeaders(server, { [name]: value });
    return undefined;
  } catch (error) {
    return error as HostError;
  }
}

/** Parameter names come from a server's schema. Returns why a frame cannot be sent. */
export function checkFacts(server: string, http: HttpFacts | undefined): HostError | undefined {
  const wrong = http?.params?.find(([name]) => !token.test(name));
  if (!wrong) return undefined;
  return new HostError(
    'invalid_request',
    `server '${server}': a parameter header has a name that HTTP does not allow`,
    {
      server,
      reason: 'header_name',
      field: `Mcp-Param-${wrong[0]}`.slice(0, fieldCharsMax),
      execution: 'not_executed',
    },
  );
}
