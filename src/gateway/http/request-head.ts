/**
 * The headers of a request that mean something to us, read in one pass over what was received.
 * Invariant: a header that stands twice is joined with a comma, whatever it is. So a doubled Host, key or method is equal to
 * nothing that is allowed, where a reader that takes the first or the last would be one of two.
 */
export class RequestHead {
  host: string | undefined;
  origin: string | undefined;
  authorization: string | undefined;
  contentType: string | undefined;
  contentLength: string | undefined;
  accept: string | undefined;
  protocolVersion: string | undefined;
  mcpMethod: string | undefined;
  mcpName: string | undefined;
  sessionId: string | undefined;
  lastEventId: string | undefined;
  /** `Hostler-Client`. */
  client: string | undefined;
  expect: string | undefined;
  readonly #raw: readonly string[];

  constructor(raw: readonly string[]) {
    this.#raw = raw;
    for (let i = 0; i + 1 < raw.length; i += 2) {
      const field = FIELDS.get((raw[i] as string).toLowerCase());
      if (field === undefined) continue;
      const before = this[field];
      this[field] = before === undefined ? raw[i + 1] : `${before}, ${raw[i + 1]}`;
    }
  }

  /** The value of any other header; `name` in lower case. */
  other(name: string): string | undefined {
    let value: string | undefined;
    for (let i = 0; i + 1 < this.#raw.length; i += 2) {
      if ((this.#raw[i] as string).toLowerCase() !== name) continue;
      value = value === undefined ? this.#raw[i + 1] : `${value}, ${this.#raw[i + 1]}`;
    }
    return value;
  }
}

const FIELDS = new Map<string, Exclude<keyof RequestHead, 'other'>>([
  ['host', 'host'],
  ['origin', 'origin'],
  ['authorization', 'authorization'],
  ['content-type', 'contentType'],
  ['content-length', 'contentLength'],
  ['accept', 'accept'],
  ['mcp-protocol-version', 'protocolVersion'],
  ['mcp-method', 'mcpMethod'],
  ['mcp-name', 'mcpName'],
  ['mcp-session-id', 'sessionId'],
  ['last-event-id', 'lastEventId'],
  ['hostler-client', 'client'],
  ['expect', 'expect'],
]);
