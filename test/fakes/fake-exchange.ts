/** Clients, sessions and requests without an ingress. Answers and notifications are recorded as text. */

import {
  type Client,
  type ClientSession,
  type EndpointId,
  type Exchange,
  parseEndpointPath,
  type RpcFailure,
} from '../../src/gateway/exchange.js';
import type { Principal } from '../../src/policy/operation.js';
import type { Era, JsonText } from '../../src/wire/channel.js';

const textOf = (text: JsonText): string => (typeof text === 'string' ? text : Buffer.from(text).toString('utf8'));

export const principalOf = (id: string, role?: string): Principal => ({ id, role, scopes: [] });

export interface FakeClientFacts {
  readonly era?: Era;
  /** `/mcp` when absent. */
  readonly path?: string;
  readonly principal?: Principal;
  readonly id?: string;
  readonly version?: string;
}

export function fakeClient(facts: FakeClientFacts = {}): Client {
  const { era = 'legacy', path = '/mcp', principal = principalOf('somebody') } = facts;
  const { id = era === 'legacy' ? 'session-1' : principal.id } = facts;
  return {
    id,
    principal,
    era,
    version: facts.version ?? (era === 'modern' ? '2026-07-28' : '2025-11-25'),
    endpoint: parseEndpointPath(path) as EndpointId,
    capabilities: {
      raw: Buffer.from('{}'),
      elicitation: false,
      elicitationUrl: false,
      sampling: false,
      roots: false,
    },
  };
}

export interface Heard {
  readonly method: string;
  readonly params: string | undefined;
}

export class FakeExchange implements Exchange {
  readonly client: Client;
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly startedAtMs = 0;
  readonly ask: Exchange['ask'];
  readonly heard: Heard[] = [];
  /** Text of the result object. */
  result: string | undefined;
  failure: RpcFailure | undefined;
  /** Number of times that the exchange was ended. More than one is a bug. */
  ends = 0;
  /** Resolves when the exchange has ended. */
  readonly ended: Promise<this>;
  readonly #abort = new AbortController();
  #end: () => void = () => {};

  constructor(client: Client, method: string, params?: string, idText = '1', ask?: Exchange['ask']) {
    this.client = client;
    this.method = method;
    this.params = params === undefined ? undefined : Buffer.from(params);
    this.idText = idText;
    this.ask = ask;
    this.ended = new Promise((resolve) => {
      this.#end = () => resolve(this);
    });
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Cancels the request, as a client that cancels or disconnects does. */
  abort(): void {
    this.#abort.abort();
  }

  notify(method: string, params: JsonText): void {
    if (this.ends === 0) this.heard.push({ method, params: textOf(params) });
  }

  succeed(...parts: readonly JsonText[]): void {
    if (this.ends++ === 0) this.result = parts.map(textOf).join('');
    this.#end();
  }

  fail(failure: RpcFailure): void {
    if (this.ends++ === 0) this.failure = failure;
    this.#end();
  }

  /** The result, parsed. */
  // biome-ignore lint/suspicious/noExplicitAny: a test knows the type of its result.
  json(): any {
    if (this.result === undefined) throw new Error(`no result: ${JSON.stringify(this.failure)}`);
    return JSON.parse(this.result);
  }
}

export class FakeSession implements ClientSession {
  readonly id: string;
  readonly principal: Principal;
  readonly era: string;
  readonly version: string;
  readonly endpoint: EndpointId;
  readonly capabilities: Client['capabilities'];
  readonly heard: Heard[] = [];
  readonly #abort = new AbortController();

  constructor(client: Client) {
    this.id = client.id;
    this.principal = client.principal;
    this.era = client.era;
    this.version = client.version;
    this.endpoint = client.endpoint;
    this.capabilities = client.capabilities;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  end(): void {
    this.#abort.abort();
  }

  notify(method: string, params: JsonText | undefined): void {
    this.heard.push({ method, params: params === undefined ? undefined : textOf(params) });
  }
}
