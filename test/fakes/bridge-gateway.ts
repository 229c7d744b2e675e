/**
 * A minimal gateway that connects official clients to a real session through the bridge: one endpoint for tool calls, without
 * lists, names, policy or HTTP. Clients use it as one of their transports.
 */
import type { Bridge, BridgeOptions, Relayed } from '../../src/gateway/bridge/bridged-request.js';
import type { AskLimits, Client, Exchange } from '../../src/gateway/exchange.js';
import { HostError } from '../../src/kernel/errors.js';
import type { Session } from '../../src/session/session.js';
import type { Era, JsonText } from '../../src/wire/channel.js';
import type { InboundRequest } from '../../src/wire/inbound-requests.js';
import type { Answer } from '../../src/wire/peer-interface.js';
import { capabilitiesOf } from './bridge-exchange.js';

// biome-ignore lint/suspicious/noExplicitAny: official clients define the types of their messages.
type Message = any;

/** A server with at most one call in progress. Its questions belong to that call. */
export class Upstream {
  readonly sent: BridgeOptions[] = [];
  /** Set once it is connected. */
  session: Session | undefined;
  #current: BridgeOptions | undefined;

  readonly take = (request: InboundRequest): void => {
    if (this.#current?.onServerRequest) this.#current.onServerRequest(request);
    else request.refuse(-32601, 'nobody asked for this');
  };

  async call(params: Message, options: BridgeOptions): Promise<Relayed> {
    const session = this.session as Session;
    this.sent.push(options);
    this.#current = options;
    const { name, arguments: args } = params;
    const own = JSON.stringify({ name, arguments: args }).slice(1, -1);
    const text = options.members === undefined ? `{${own}}` : `{${own},${options.members}}`;
    const { signal } = options;
    const deadlineAtMs = performance.now() + 20_000;
    const answer = await session.request('tools/call', text, signal ? { deadlineAtMs, signal } : { deadlineAtMs });
    return { kind: answer.kind, bytes: answer.bytes, era: session.facts.era };
  }
}

const info = { name: 'gateway', version: '0' };

export class GatewayEnd {
  onmessage: ((message: Message) => void) | undefined;
  onclose: (() => void) | undefined;
  /** Every message of the client, in order. */
  readonly heard: Message[] = [];
  readonly #bridge: Bridge;
  readonly #upstream: Upstream;
  readonly #principal: string;
  readonly #answers = new Map<number, (answer: Answer) => void>();
  readonly #open = new Map<unknown, AbortController>();
  #declared = '{}';
  #nextId = 1000;

  constructor(bridge: Bridge, upstream: Upstream, principal: string) {
    this.#bridge = bridge;
    this.#upstream = upstream;
    this.#principal = principal;
  }

  async start(): Promise<void> {}

  async close(): Promise<void> {
    for (const open of this.#open.values()) open.abort();
    this.onclose?.();
  }

  async send(message: Message): Promise<void> {
    this.heard.push(message);
    const { id, method, params } = message;
    if (method === undefined) return this.#answered(message);
    if (method === 'notifications/cancelled') return this.#open.get(params.requestId)?.abort();
    if (id === undefined) return;
    if (method === 'initialize') {
      this.#declared = JSON.stringify(params.capabilities);
      return this.#tell({
        id,
        result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: info },
      });
    }
    if (method === 'server/discover') {
      const hints = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };
      return this.#tell({ id, result: { ...hints, supportedVersions: ['2026-07-28'], capabilities: { tools: {} } } });
    }
    if (method !== 'tools/call') return this.#tell({ id, error: { code: -32601, message: 'only tools here' } });
    void this.#call(id, params);
  }

  async #call(id: unknown, params: Message): Promise<void> {
    const declared = params._meta?.['io.modelcontextprotocol/clientCapabilities'];
    const era: Era = declared ? 'modern' : 'legacy';
    const gone = new AbortController();
    this.#open.set(id, gone);
    const exchange = this.#exchange(era, declared ? JSON.stringify(declared) : this.#declared, gone.signal);
    const { name, arguments: args, inputResponses, requestState } = params;
    try {
      const {
        kind,
        bytes,
        era: wordsOf,
      } = await this.#bridge.relay({
        exchange,
        server: 'fixture',
        send: (options) => this.#upstream.call(params, options),
        identity: () => Buffer.from(JSON.stringify(['tools/call', name, args])),
        inputResponses: inputResponses && Buffer.from(JSON.stringify(inputResponses)),
        requestState: requestState && Buffer.from(JSON.stringify(requestState)),
      });
      const words = JSON.parse(bytes.toString('utf8'));
      if (kind === 'error') return this.#tell({ id, error: words });
      this.#tell({
        id,
        result: era === 'modern' && wordsOf === 'legacy' ? { resultType: 'complete', ...words } : words,
      });
    } catch (error) {
      this.#tell({ id, error: { code: -32000, message: (error as Error).message } });
    } finally {
      this.#open.delete(id);
    }
  }

  #exchange(era: Era, capabilities: string, signal: AbortSignal): Exchange {
    const { client, ask }: { client: Client; ask: NonNullable<Exchange['ask']> } = {
      client: {
        id: this.#principal,
        principal: { id: this.#principal, role: undefined, scopes: [] },
        era,
        version: era === 'modern' ? '2026-07-28' : '2025-11-25',
        endpoint: { kind: 'all' },
        capabilities: capabilitiesOf(capabilities),
      },
      ask: (method, params, limits) => this.#ask(method, params, limits),
    };
    return {
      client,
      idText: '1',
      method: 'tools/call',
      params: undefined,
      startedAtMs: 0,
      signal,
      notify: () => {},
      ask: era === 'legacy' ? ask : undefined,
      succeed: () => {},
      fail: () => {},
    };
  }

  #ask(method: string, params: JsonText | undefined, { signal }: AskLimits): Promise<Answer> {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#answers.set(id, resolve);
      signal?.addEventListener('abort', () => {
        this.#tell({ method: 'notifications/cancelled', params: { requestId: id } });
        reject(new HostError('cancelled', 'the ask was cancelled'));
      });
      this.#tell({
        id,
        method,
        ...(params === undefined ? {} : { params: JSON.parse(Buffer.from(params as Buffer).toString()) }),
      });
    });
  }

  #answered({ id, result, error }: Message): void {
    const kind = error ? 'error' : 'result';
    this.#answers.get(id)?.({ kind, bytes: Buffer.from(JSON.stringify(error ?? result)), mayHold: 0 });
    this.#answers.delete(id);
  }

  #tell(message: object): void {
    queueMicrotask(() => this.onmessage?.({ jsonrpc: '2.0', ...message }));
  }
}
