/**
 * Builds request headers by the rules of the agreed era. Configured headers and the current token are sent with every request
 * to the configured origin. The token replaces a configured header of the same name.
 * Invariant: text from a server or caller is encoded unless it is visible ASCII, so no value can inject a header.
 */
import { HostError } from '../../kernel/errors.js';
import type { Agreement, EraRules, HttpFacts, OutboundFrame } from '../../wire/channel.js';
import { encodeHeaderValue } from '../../wire/header-value.js';
import { type AuthToken, headersOf, type TokenSource } from './auth-token.js';

const acceptBoth = 'application/json, text/event-stream';
const fieldCharsMax = 200;
const sessionIdCharsMax = 1024;

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const configuredValue = /^[\x20-\x7e\x80-\xff\t]*$/;

/** Headers that the transport sets, or that belong to HTTP framing. */
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

/** Alternating names and values, the format of undici. */
export type HeaderList = string[];

export type ResponseHeaders = Record<string, string | string[] | undefined>;

export function headerText(headers: ResponseHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

export const isEventStream = (headers: ResponseHeaders): boolean =>
  headerText(headers, 'content-type')?.toLowerCase().startsWith('text/event-stream') === true;

/** Throws `invalid_spec` naming the field. */
export function configuredHeaders(server: string, headers: Readonly<Record<string, string>> = {}): HeaderList {
  const list: HeaderList = [];
  for (const [name, value] of Object.entries(headers)) {
    const field = `headers.${name}`.slice(0, fieldCharsMax);
    const wrong = (what: string) => new HostError('invalid_spec', `server '${server}': ${what}`, { server, field });
    if (!token.test(name)) throw wrong('a header name has characters that HTTP does not allow');
    if (RESERVED.has(name.toLowerCase())) throw wrong(`the header ${name} is set by Hostler itself; remove it`);
    // No error quotes the value, because it may be a secret.
    if (typeof value !== 'string' || !configuredValue.test(value)) {
      throw wrong(`the value of the header ${name} has characters that HTTP does not allow`);
    }
    list.push(name.toLowerCase(), value.trim());
  }
  if (!list.includes('user-agent')) list.push('user-agent', 'hostler');
  return list;
}

/** The server chooses a session id, and Hostler sends it back in a header. */
export const isSessionId = (value: string): boolean =>
  value.length <= sessionIdCharsMax && /^[\x21-\x7e]+$/.test(value);

export class RequestHeaders {
  readonly #configured: HeaderList;
  readonly #tokens: TokenSource | undefined;
  #token: AuthToken | undefined;
  #own: HeaderList = [];
  #agreement: Agreement | undefined;
  #sessionId: string | undefined;
  /** Headers of a POST that opens a session (`#opening`), and of every other POST (`#agreed`). */
  #opening: HeaderList = [];
  #agreed: HeaderList = [];

  constructor(configured: HeaderList, tokens?: TokenSource) {
    this.#configured = configured;
    this.#tokens = tokens;
    this.#token = tokens?.current();
    this.#rebuild();
  }

  /** Token of the headers that were built last. */
  get token(): AuthToken | undefined {
    return this.#token;
  }

  get sessionId(): string | undefined {
    return this.#sessionId;
  }

  /** False after an era without HTTP sessions was agreed on. */
  get mayHaveSession(): boolean {
    return this.#agreement?.era.hasHttpSession !== false;
  }

  adopt(agreement: Agreement): void {
    this.#agreement = agreement;
    this.#rebuild();
  }

  setSession(id: string | undefined): void {
    this.#sessionId = id;
    this.#rebuild();
  }

  /** Era of a message: its own if it opens a session, otherwise the agreed one. */
  eraOf(frame: OutboundFrame): EraRules | undefined {
    return frame.http?.opens ?? this.#agreement?.era;
  }

  /** Headers for the POST of a frame that `checkFacts` has accepted. */
  post(frame: OutboundFrame): HeaderList {
    this.#refreshToken();
    const { http, method } = frame;
    const list = http?.opens ? [...this.#opening, ...versionHeader(http.opens.openingVersion)] : this.#agreed;
    if (!this.eraOf(frame)?.mirrorsRequests) return list;
    const mirrored = [...list];
    if (method !== undefined) mirrored.push('mcp-method', encodeHeaderValue(method));
    if (http?.name !== undefined) mirrored.push('mcp-name', encodeHeaderValue(http.name));
    for (const [name, value] of http?.params ?? []) mirrored.push(`mcp-param-${name}`, encodeHeaderValue(value));
    return mirrored;
  }

  stream(lastEventId: string | undefined): HeaderList {
    this.#refreshToken();
    const list = this.#bodyless('text/event-stream');
    if (lastEventId !== undefined) list.push('last-event-id', lastEventId);
    return list;
  }

  end(): HeaderList {
    this.#refreshToken();
    return this.#bodyless('application/json');
  }

  #refreshToken(): void {
    const token = this.#tokens?.current();
    if (token === this.#token) return;
    this.#token = token;
    this.#rebuild();
  }

  #rebuild(): void {
    this.#own = withToken(this.#configured, this.#token);
    this.#opening = [
      ...['content-type', 'application/json', 'accept', acceptBoth, 'accept-encoding', 'identity'],
      ...this.#own,
    ];
    this.#agreed = [...this.#opening, ...this.#agreedHeaders()];
  }

  #agreedHeaders(): HeaderList {
    const sessionId = this.mayHaveSession ? this.#sessionId : undefined;
    return [
      ...versionHeader(this.#agreement?.version),
      ...(sessionId === undefined ? [] : ['mcp-session-id', sessionId]),
    ];
  }

  #bodyless(accept: string): HeaderList {
    return ['accept', accept, 'accept-encoding', 'identity', ...this.#own, ...this.#agreedHeaders()];
  }
}

/** Encoded, because the version may come from the server. */
const versionHeader = (version: string | undefined): HeaderList =>
  version === undefined ? [] : ['mcp-protocol-version', encodeHeaderValue(version)];

function withToken(configured: HeaderList, token: AuthToken | undefined): HeaderList {
  if (!token) return configured;
  const own = headersOf(token).map(([name, value]) => [name.toLowerCase(), value] as const);
  const others = configured.filter((_, at) => own.every(([name]) => configured[at - (at % 2)] !== name));
  return [...others, ...own.flat()];
}

/** Returns the reason why a token cannot be a header. The reason never quotes the value. */
export function checkToken(server: string, token: AuthToken): HostError | undefined {
  try {
    for (const [name, value] of headersOf(token)) configuredHeaders(server, { [name]: value });
    return undefined;
  } catch (error) {
    return error as HostError;
  }
}

/** Returns the reason why a frame cannot be sent: parameter names come from the schema of a server. */
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
