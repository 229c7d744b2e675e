/**
 * The bridge for legacy clients. It forwards the questions of legacy servers, and turns `input_required` of modern servers into
 * questions.
 */
import { type Clock, sleep } from '../../../kernel/clock.js';
import { ERRORS, isHostError } from '../../../kernel/errors.js';
import { LIMITS } from '../../../kernel/limits.js';
import { type Random, randomInt } from '../../../kernel/random.js';
import type { InboundRequest } from '../../../wire/inbound-requests.js';
import { memberBytes, memberString } from '../../../wire/json-members.js';
import { RPC } from '../../../wire/methods.js';
import {
  type Bridge,
  type BridgedRequest,
  type BridgeOptions,
  cancelled,
  quoted,
  type Relayed,
  refuseUndeclared,
  refuseUnknown,
  rpcError,
} from '../../bridge/bridged-request.js';
import {
  describeCapabilities,
  forwardedCapabilities,
  isDeclared,
  neededCapability,
} from '../../bridge/client-capabilities.js';
import { type InputRequest, type InputRequired, readInputRequired } from '../../bridge/input-required.js';
import type { Ask, Exchange } from '../../exchange.js';

interface LegacyBridgeParts {
  readonly clock: Clock;
  readonly random: Random;
}

export const createLegacyBridge = (parts: LegacyBridgeParts): Bridge => ({
  relay: (request) => relayLegacy(request, parts),
});

async function relayLegacy(request: BridgedRequest, { clock, random }: LegacyBridgeParts): Promise<Relayed> {
  const { exchange, server } = request;
  // Created on demand: few servers send requests.
  let asks: ServerRequests | undefined;
  const options: BridgeOptions = {
    capabilities: forwardedCapabilities(exchange.client, exchange.ask !== undefined),
    onServerRequest: (inbound) => {
      asks ??= new ServerRequests(exchange, clock);
      asks.take(inbound);
    },
  };
  try {
    const relayed = await request.send(options);
    const required = readInputRequired(server, exchange.method, relayed);
    return required ? await new InputRounds(request, clock, random).run(relayed, required, options) : relayed;
  } finally {
    asks?.end();
  }
}

/** Maximum of open server requests per call. */
export const asksMax = 32;

class ServerRequests {
  readonly #exchange: Exchange;
  readonly #clock: Clock;
  readonly #open = new Set<AbortController>();
  #isOver = false;

  constructor(exchange: Exchange, clock: Clock) {
    this.#exchange = exchange;
    this.#clock = clock;
  }

  take(request: InboundRequest): void {
    const need = neededCapability(request.method, request.params);
    if (!need) return refuseUnknown(request);
    const { client, ask } = this.#exchange;
    if (!ask || !isDeclared(need, client.capabilities)) return refuseUndeclared(request, need);
    if (this.#isOver) return request.refuse(RPC.internalError, 'the call has ended');
    if (this.#open.size >= asksMax)
      return request.refuse(
        ERRORS.overloaded.rpc,
        `overloaded: at most ${asksMax} requests of one call wait for the client`,
      );
    void this.#relay(request, ask);
  }

  /** Called when the call is answered or cancelled. */
  end(): void {
    this.#isOver = true;
    for (const open of this.#open) open.abort();
  }

  async #relay(request: InboundRequest, ask: Ask): Promise<void> {
    const ending = new AbortController();
    const end = () => ending.abort();
    this.#open.add(ending);
    request.signal.addEventListener('abort', end, { once: true });
    try {
      const deadlineAtMs = this.#clock.nowMs() + askLimitMs;
      const answer = await ask(request.method, request.params, { deadlineAtMs, signal: ending.signal });
      if (this.#isOver) request.refuse(RPC.internalError, 'the call has ended');
      else if (answer.kind === 'result') request.respond(answer.bytes);
      else request.fail(answer.bytes);
    } catch (error) {
      const why = isHostError(error) ? error.message : 'the client could not be asked';
      request.refuse(RPC.internalError, this.#isOver ? 'the call has ended' : why);
    } finally {
      request.signal.removeEventListener('abort', end);
      this.#open.delete(ending);
    }
  }
}

/** Time for a person to answer one question. */
export const askLimitMs = 5 * 60_000;
export const roundsMax = 8;
/** Pause before the next call to a server that sent only a `requestState` and no questions. */
const stateOnlyPauseMs = 250;
/** Maximum size of the answers in one round. */
const responsesBytesMax = LIMITS.frameBytes;

/**
 * Handles `input_required` of a modern server for a legacy client. Each round sends the questions to the client as requests,
 * and then sends the call again with the answers.
 * Invariants: a round is checked before its first request is sent. The first failed request cancels the others.
 */
class InputRounds {
  readonly #request: BridgedRequest;
  readonly #clock: Clock;
  readonly #random: Random;

  constructor(request: BridgedRequest, clock: Clock, random: Random) {
    this.#request = request;
    this.#clock = clock;
    this.#random = random;
  }

  /** `first` is the answer that contains `required`; `options` are the options with which the call was sent. */
  async run(first: Relayed, required: InputRequired, options: BridgeOptions): Promise<Relayed> {
    const { exchange, server } = this.#request;
    let relayed = first;
    let asked: InputRequired | undefined = required;
    for (let round = 1; asked; round++) {
      if (round > roundsMax)
        return this.#failure(`${quoted(exchange.method)} still required input after ${roundsMax} rounds`);
      const responses = await this.#responses(asked.requests);
      if (exchange.signal.aborted) throw cancelled(server);
      if (typeof responses !== 'string') return responses;
      const { state } = asked;
      const stateText = state ? `"requestState":${relayed.bytes.toString('utf8', state.start, state.end)}` : '';
      relayed = await this.#request.send({ ...options, members: [responses, stateText].filter(Boolean).join(',') });
      asked = readInputRequired(server, exchange.method, relayed);
    }
    return relayed;
  }

  /** A failed tool call becomes a result, which the model can read. SDK 2.4 does the same. */
  #failure(message: string): Relayed {
    if (this.#request.exchange.method !== 'tools/call') return rpcError('legacy', RPC.internalError, message);
    const text = JSON.stringify(message);
    return {
      kind: 'result',
      bytes: Buffer.from(`{"content":[{"type":"text","text":${text}}],"isError":true}`),
      era: 'legacy',
    };
  }

  /** Returns a JSON member for params, without braces, or the failure for the client. */
  async #responses(requests: readonly InputRequest[]): Promise<string | Relayed> {
    const { client, ask, signal } = this.#request.exchange;
    if (requests.length === 0) {
      await sleep(this.#clock, stateOnlyPauseMs, signal);
      return '';
    }
    for (const { key, method, need } of requests) {
      if (!ask || !isDeclared(need, client.capabilities))
        return this.#failure(
          `cannot request input ${quoted(key)} (${method}): the client does not support ${describeCapabilities([need])}`,
        );
    }
    return this.#askAll(requests, ask as Ask);
  }

  /** Sends all requests at once and in order, because a modern client would get them together. */
  async #askAll(requests: readonly InputRequest[], ask: Ask): Promise<string | Relayed> {
    const { signal } = this.#request.exchange;
    const ending = new AbortController();
    const end = () => ending.abort();
    signal.addEventListener('abort', end, { once: true });
    let failure: string | undefined;
    const fail = (why: string) => {
      failure ??= why;
      end();
    };
    const limits = { deadlineAtMs: this.#clock.nowMs() + askLimitMs, signal: ending.signal };
    const texts = await Promise.all(
      requests.map(async (request) => {
        try {
          const answer = await ask(request.method, this.#legacyParams(request), limits);
          if (answer.kind === 'result') return `${JSON.stringify(request.key)}:${answer.bytes.toString('utf8')}`;
          fail(
            memberString(answer.bytes, 'message')?.slice(0, LIMITS.quotedChars) ?? 'the client answered with an error',
          );
        } catch (error) {
          fail(isHostError(error) ? error.message : 'the client could not be asked');
        }
        return '';
      }),
    );
    signal.removeEventListener('abort', end);
    const { method } = this.#request.exchange;
    if (failure !== undefined)
      return this.#failure(`fulfilling input required by ${quoted(method)} failed: ${failure}`);
    const text = `"inputResponses":{${texts.join(',')}}`;
    return text.length <= responsesBytesMax
      ? text
      : this.#failure(`the answer of the client to ${quoted(method)} is too large`);
  }

  /** The legacy era requires an id for elicitation by URL; the modern era has none. */
  #legacyParams({ need, params }: InputRequest): Buffer | undefined {
    if (need !== 'url' || !params || memberBytes(params, 'elicitationId')) return params;
    const open = params.indexOf(0x7b) + 1;
    return Buffer.concat([
      params.subarray(0, open),
      Buffer.from(`"elicitationId":"${this.#elicitationId()}",`),
      params.subarray(open),
    ]);
  }

  /** Not secret: only the client sees this id. */
  #elicitationId(): string {
    return Array.from({ length: 16 }, () => randomInt(this.#random, 0, 255).toString(16).padStart(2, '0')).join('');
  }
}
