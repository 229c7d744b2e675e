/**
 * Clients and servers for tests of the bridge: an exchange whose client is the test, and a scripted upstream that records its
 * requests.
 */
import type { BridgedRequest, BridgeOptions, Relayed } from '../../src/gateway/bridge/bridged-request.js';
import type { AskLimits, ClientCapabilities, Exchange } from '../../src/gateway/exchange.js';
import { HostError } from '../../src/kernel/errors.js';
import { type Era, frameText, type JsonText } from '../../src/wire/channel.js';
import { InboundRequest } from '../../src/wire/inbound-requests.js';
import type { Answer } from '../../src/wire/peer-interface.js';

export const everything = '{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true}}';

export function capabilitiesOf(raw: string): ClientCapabilities {
  const { elicitation, sampling, roots } = JSON.parse(raw) as Record<string, Record<string, unknown> | undefined>;
  return {
    raw: Buffer.from(raw),
    elicitation: elicitation !== undefined,
    elicitationUrl: elicitation?.url !== undefined,
    sampling: sampling !== undefined,
    roots: roots !== undefined,
  };
}

interface Asked {
  readonly method: string;
  readonly params: string | undefined;
  readonly limits: AskLimits;
  readonly answer: (kind: Answer['kind'], text: string) => void;
  readonly fail: (error: Error) => void;
}

export interface FakeExchange extends Exchange {
  readonly asked: Asked[];
  readonly leave: () => void;
}

export function fakeExchange(
  era: Era,
  { capabilities = everything, principal = 'ada', role = undefined as string | undefined, method = 'tools/call' } = {},
): FakeExchange {
  const gone = new AbortController();
  const asked: Asked[] = [];
  const ask = (name: string, params: JsonText | undefined, limits: AskLimits) =>
    new Promise<Answer>((resolve, reject) => {
      asked.push({
        method: name,
        params: params === undefined ? undefined : Buffer.from(params as Buffer).toString('utf8'),
        limits,
        answer: (kind, text) => resolve({ kind, bytes: Buffer.from(text), mayHold: 0 }),
        fail: reject,
      });
      limits.signal?.addEventListener('abort', () => reject(new HostError('cancelled', 'the ask was cancelled')));
    });
  return {
    client: {
      id: principal,
      principal: { id: principal, role, scopes: [] },
      era,
      version: era === 'modern' ? '2026-07-28' : '2025-11-25',
      endpoint: { kind: 'all' },
      capabilities: capabilitiesOf(capabilities),
    },
    idText: '1',
    method,
    params: undefined,
    startedAtMs: 0,
    signal: gone.signal,
    notify: () => {},
    ask: era === 'legacy' ? ask : undefined,
    succeed: () => {},
    fail: () => {},
    asked,
    leave: () => gone.abort(),
  };
}

/** Called each time the request is sent. Resolves with the answer. */
export type Script = (options: BridgeOptions, round: number) => Relayed | Promise<Relayed>;

export function bridged(
  exchange: Exchange,
  script: Script,
  {
    requestState,
    ...more
  }: Partial<Pick<BridgedRequest, 'inputResponses' | 'identity' | 'server' | 'serverEra' | 'moveTo'>> & {
    readonly requestState?: unknown;
  } = {},
): BridgedRequest & { readonly sent: BridgeOptions[] } {
  const sent: BridgeOptions[] = [];
  return {
    exchange,
    server: 'files',
    identity: () => Buffer.from('tools/call\0move\0{"a":1}'),
    inputResponses: undefined,
    requestState: requestState === undefined ? undefined : Buffer.from(JSON.stringify(requestState)),
    ...more,
    send: async (options) => script(options, sent.push(options)),
    sent,
  };
}

export const modernResult = (text: string): Relayed => ({ kind: 'result', bytes: Buffer.from(text), era: 'modern' });
export const legacyResult = (text: string): Relayed => ({ kind: 'result', bytes: Buffer.from(text), era: 'legacy' });

export const parsed = ({ bytes }: Relayed) => JSON.parse(bytes.toString('utf8'));

/** A request of a server, with its recorded answers as parsed objects. */
export function inbound(method: string, params?: string, id = 7): { request: InboundRequest; answers: unknown[] } {
  const answers: unknown[] = [];
  const request = new InboundRequest(
    String(id),
    method,
    params === undefined ? undefined : Buffer.from(params),
    undefined,
    (frame) => answers.push(JSON.parse(frameText(frame))),
  );
  return { request, answers };
}

/** A legacy server in the middle of a call. The test sends its questions and finishes its call. */
export function legacyServer() {
  let finish: (relayed: Relayed) => void = () => {};
  let fail: (error: unknown) => void = () => {};
  let options: BridgeOptions = {};
  const script = (given: BridgeOptions) => {
    options = given;
    return new Promise<Relayed>((resolve, reject) => {
      finish = resolve;
      fail = reject;
      given.signal?.addEventListener('abort', () => reject(new HostError('cancelled', 'gone')));
    });
  };
  return {
    script,
    ask: (method: string, params?: string, id?: number) => {
      const asked = inbound(method, params, id);
      options.onServerRequest?.(asked.request);
      return asked;
    },
    finish: (text = '{"content":[]}') => finish(legacyResult(text)),
    fail: (error: unknown) => fail(error),
    isCancelled: () => options.signal?.aborted === true,
  };
}

/** Lets promise reactions run. */
export const settled = () => new Promise<void>((resolve) => setImmediate(resolve));
