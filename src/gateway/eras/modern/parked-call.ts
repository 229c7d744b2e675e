/**
 * One call of a modern client to a server that may send requests during the call. Performs the effects of parked-state.ts.
 * Not here: translation of the server's answer (`translate`), the owner of a state (bridge.ts).
 * Invariants: at most one request of the client waits at a time, and it is settled once. The call is sent to the server once.
 */
import { ByteBudget } from '../../../kernel/byte-budget.js';
import type { Cancel, Clock } from '../../../kernel/clock.js';
import { ERRORS, HostError } from '../../../kernel/errors.js';
import { newId } from '../../../kernel/random.js';
import type { InboundRequest } from '../../../wire/inbound-requests.js';
import { memberBytes } from '../../../wire/json-members.js';
import { RPC } from '../../../wire/methods.js';
import type { BridgedRequest, BridgeOptions, Relayed } from '../../bridge/bridged-request.js';
import { cancelled, refuseUndeclared, refuseUnknown } from '../../bridge/bridged-request.js';
import { type ClientCapability, isDeclared, neededCapability } from '../../bridge/client-capabilities.js';
import { type InputRequest, inputRequestsMax, inputRequiredBytesMax } from '../../bridge/input-required.js';
import type { Client, Exchange } from '../../exchange.js';
import { inputRequiredResult } from './own-answers.js';
import { type ParkedEffect, type ParkedEvent, type ParkedState, stepParked } from './parked-state.js';

/** Requests that a server sends within this time reach the client together. */
export const gatherMs = 5;
/** A server often ends the call after a refused request. The client gets the other requests only after this time. */
export const afterRefusalMs = 250;
/** Time for the client to send its answers. */
export const parkedLifeMs = 5 * 60_000;

interface Waiter {
  readonly resolve: (relayed: Relayed) => void;
  readonly reject: (error: unknown) => void;
  readonly stop: () => void;
}

/** `params` is a copy, because the server's bytes are a view of a larger buffer. */
interface OpenAsk extends InputRequest {
  readonly request: InboundRequest;
  readonly stop: () => void;
}

type Outcome = { readonly relayed: Relayed } | { readonly error: unknown };

export interface ParkedCallPorts {
  readonly clock: Clock;
  readonly calls: ParkedCalls;
  readonly seal: (handle: string, client: Client) => string;
  /** Translates the server's answer for the client. May throw a HostError. */
  readonly translate: (relayed: Relayed) => Relayed;
}

export class ParkedCall implements Resumable {
  readonly #first: BridgedRequest;
  readonly #ports: ParkedCallPorts;
  readonly #ending = new AbortController();
  readonly #asks = new Map<string, OpenAsk>();
  readonly #events: ParkedEvent[] = [];
  #isStepping = false;
  #state: ParkedState = { kind: 'running' };
  #exchange: Exchange;
  #waiter: Waiter | undefined;
  #responses: Buffer | undefined;
  #outcome: Outcome | undefined;
  #storedBytes = 0;
  #id: string | undefined;
  #round = 0;
  #askCount = 0;
  /** Time of the last refusal because of a missing capability. */
  #refusedAtMs = Number.NEGATIVE_INFINITY;
  #stopGathering: Cancel | undefined;
  #disarmExpiry: Cancel | undefined;

  constructor(first: BridgedRequest, ports: ParkedCallPorts) {
    this.#first = first;
    this.#ports = ports;
    this.#exchange = first.exchange;
  }

  get client(): Client {
    return this.#exchange.client;
  }

  start(options: BridgeOptions): Promise<Relayed> {
    const waiting = this.#wait(this.#exchange);
    void this.#send(options);
    return waiting;
  }

  resume(round: number, { exchange, inputResponses }: BridgedRequest): Promise<Relayed> | undefined {
    if (this.#state.kind !== 'asked' || round !== this.#round) return undefined;
    this.#exchange = exchange;
    this.#first.moveTo?.(exchange);
    // The capabilities of this request replace those of the request before it.
    for (const ask of this.#asks.values()) {
      if (isDeclared(ask.need, exchange.client.capabilities)) continue;
      this.#drop(ask);
      this.#refuseUndeclared(ask.request, ask.need);
      this.#step({ kind: 'withdrawn', key: ask.key });
    }
    this.#responses = inputResponses;
    const answered = [...this.#asks.keys()].filter((key) => this.#responseTo(key));
    const waiting = this.#wait(exchange, { kind: 'resumed', answered });
    this.#responses = undefined;
    return waiting;
  }

  /** Ends the call if it waits for its client. */
  endWaiting(): void {
    if (this.#state.kind !== 'asked') return;
    this.#disarmExpiry?.();
    this.#step({ kind: 'expired' });
  }

  async #send(options: BridgeOptions): Promise<void> {
    try {
      const answer = await this.#first.send({
        ...options,
        onServerRequest: (request) => this.#take(request),
        signal: this.#ending.signal,
      });
      this.#outcome = { relayed: this.#ports.translate(answer) };
    } catch (error) {
      this.#outcome = { error };
    }
    if (this.#state.kind === 'asked') this.#outcome = this.#stored(this.#outcome);
    this.#step({ kind: 'finished' });
  }

  #take(request: InboundRequest): void {
    const { method, params } = request;
    const need = neededCapability(method, params);
    if (!need) return refuseUnknown(request);
    if (!isDeclared(need, this.#exchange.client.capabilities)) return this.#refuseUndeclared(request, need);
    if (this.#asks.size >= inputRequestsMax || (params?.length ?? 0) > inputRequiredBytesMax)
      return request.refuse(
        ERRORS.overloaded.rpc,
        'overloaded: the call sent too many questions at once, or one that is too large',
      );
    if (this.#state.kind === 'over') return request.refuse(RPC.internalError, 'the call has ended');
    this.#id ??= this.#ports.calls.add(this, this.#first.exchange.client.principal.id);
    if (this.#id === undefined)
      return request.refuse(ERRORS.overloaded.rpc, 'overloaded: too many calls wait for their clients');
    const key = `ask-${++this.#askCount}`;
    const { signal } = request;
    const withdrawn = () => {
      this.#drop(ask);
      this.#step({ kind: 'withdrawn', key });
    };
    const stop = () => signal.removeEventListener('abort', withdrawn);
    const ask: OpenAsk = { key, request, method, params: params && Buffer.from(params), need, stop };
    signal.addEventListener('abort', withdrawn, { once: true });
    this.#asks.set(key, ask);
    this.#step({ kind: 'ask', key });
  }

  #refuseUndeclared(request: InboundRequest, need: ClientCapability): void {
    this.#refusedAtMs = this.#ports.clock.nowMs();
    refuseUndeclared(request, need);
    if (this.#state.kind !== 'asking') return;
    this.#stopGathering?.();
    this.#gather();
  }

  #gather(): void {
    const { clock } = this.#ports;
    const untilMs = Math.max(clock.nowMs() + gatherMs, this.#refusedAtMs + afterRefusalMs);
    this.#stopGathering = clock.at(untilMs, () => this.#step({ kind: 'gathered' }));
  }

  #wait(exchange: Exchange, event?: ParkedEvent): Promise<Relayed> {
    return new Promise((resolve, reject) => {
      const { signal } = exchange;
      const left = () => this.#step({ kind: 'left' });
      this.#waiter = { resolve, reject, stop: () => signal.removeEventListener('abort', left) };
      signal.addEventListener('abort', left, { once: true });
      if (event) this.#step(event);
      if (signal.aborted) left();
    });
  }

  /** An event that occurs during an effect is queued, so that effects never nest. */
  #step(event: ParkedEvent): void {
    this.#events.push(event);
    if (this.#isStepping) return;
    this.#isStepping = true;
    try {
      for (let next = this.#events.shift(); next; next = this.#events.shift()) {
        const [state, effects] = stepParked(this.#state, next);
        this.#state = state;
        for (const effect of effects) this.#perform(effect);
      }
    } finally {
      this.#isStepping = false;
    }
  }

  #perform(effect: ParkedEffect): void {
    const { clock } = this.#ports;
    switch (effect.do) {
      case 'gather':
        return this.#gather();
      case 'stopGathering':
        return this.#stopGathering?.();
      case 'armExpiry':
        if (this.#ports.calls.isClosed) return this.#step({ kind: 'expired' });
        this.#disarmExpiry = clock.at(clock.nowMs() + parkedLifeMs, () => this.#step({ kind: 'expired' }));
        return;
      case 'disarmExpiry':
        return this.#disarmExpiry?.();
      case 'reply':
        return this.#endWait(({ resolve }) => resolve(this.#reply(effect.keys)));
      case 'answer':
        return this.#answer(effect.key);
      case 'refuse':
        return this.#refuse(effect.key);
      case 'settle':
        return this.#endWait((waiter) => this.#settle(waiter));
      case 'giveUp':
        return this.#endWait(({ reject }) => reject(cancelled(this.#first.server)));
      case 'abort':
        return this.#ending.abort();
      case 'forget':
        return this.#forget();
      default:
        return effect satisfies never;
    }
  }

  #reply(keys: readonly string[]): Relayed {
    const state = this.#ports.seal(`${this.#id}.${++this.#round}`, this.client);
    return inputRequiredResult(
      keys.flatMap((key) => this.#asks.get(key) ?? []),
      state,
    );
  }

  #endWait(end: (waiter: Waiter) => void): void {
    const waiter = this.#waiter;
    this.#waiter = undefined;
    if (!waiter) return;
    waiter.stop();
    try {
      end(waiter);
    } catch (error) {
      waiter.reject(error);
    }
  }

  #settle({ resolve, reject }: Waiter): void {
    const outcome = this.#outcome as Outcome;
    if ('relayed' in outcome) resolve(outcome.relayed);
    else reject(outcome.error);
  }

  /** Undefined: the response is missing or is not an object. The client will get the question again. */
  #responseTo(key: string): Buffer | undefined {
    const response = this.#responses && memberBytes(this.#responses, key);
    return response?.[0] === 0x7b ? response : undefined;
  }

  #answer(key: string): void {
    const ask = this.#asks.get(key);
    const response = this.#responseTo(key);
    if (!ask || !response) return;
    this.#drop(ask);
    try {
      ask.request.respond(response);
    } catch {
      ask.request.refuse(RPC.internalError, 'the answer of the client is not valid JSON');
    }
  }

  #refuse(key: string): void {
    const ask = this.#asks.get(key);
    if (!ask) return;
    this.#drop(ask);
    ask.request.refuse(RPC.internalError, 'the client did not answer before the call was over');
  }

  #drop({ key, stop }: OpenAsk): void {
    stop();
    this.#asks.delete(key);
  }

  /** Copies the answer: its buffer is shared with other messages, and the client may take minutes. */
  #stored(outcome: Outcome): Outcome {
    if (!('relayed' in outcome)) return outcome;
    const { relayed } = outcome;
    if (!this.#ports.calls.answerBytes.take(relayed.bytes.length)) {
      const { server } = this.#first;
      const message = `server '${server}' answered while the client was being asked a question, and the buffer for such answers is full`;
      return { error: new HostError('overloaded', message, { server, phase: 'answered', execution: 'uncertain' }) };
    }
    this.#storedBytes = relayed.bytes.length;
    return { relayed: { ...relayed, bytes: Buffer.from(relayed.bytes) } };
  }

  #forget(): void {
    if (this.#id !== undefined) this.#ports.calls.remove(this.#id, this.#first.exchange.client.principal.id);
    this.#ports.calls.answerBytes.release(this.#storedBytes);
    this.#storedBytes = 0;
  }
}

export const parkedMax = 256;
export const parkedPerPrincipalMax = 16;
/** Maximum total size of the answers that wait for their clients. */
export const answerBytesMax = 64 * 1024 * 1024;

export interface Resumable {
  /** The client of the newest request. */
  readonly client: Client;
  /** Undefined: the call does not wait for answers of this round. */
  resume(round: number, request: BridgedRequest): Promise<Relayed> | undefined;
  endWaiting(): void;
}

export class ParkedCalls {
  readonly #byId = new Map<string, Resumable>();
  readonly #perPrincipal = new Map<string, number>();
  readonly answerBytes = new ByteBudget(answerBytesMax);
  /** True: no client can continue a call. */
  isClosed = false;

  get size(): number {
    return this.#byId.size;
  }

  /** Returns the id of the call; undefined: the table, or the share of this principal, is full. */
  add(call: Resumable, principal: string): string | undefined {
    const own = this.#perPrincipal.get(principal) ?? 0;
    if (this.#byId.size >= parkedMax || own >= parkedPerPrincipalMax) return undefined;
    const id = newId();
    this.#byId.set(id, call);
    this.#perPrincipal.set(principal, own + 1);
    return id;
  }

  remove(id: string, principal: string): void {
    if (!this.#byId.delete(id)) return;
    const left = (this.#perPrincipal.get(principal) ?? 1) - 1;
    if (left > 0) this.#perPrincipal.set(principal, left);
    else this.#perPrincipal.delete(principal);
  }

  endWaiting(isMeant: (client: Client) => boolean): void {
    for (const call of [...this.#byId.values()]) if (isMeant(call.client)) call.endWaiting();
  }

  close(): void {
    this.isClosed = true;
    this.endWaiting(() => true);
  }

  get(id: string): Resumable | undefined {
    return this.#byId.get(id);
  }
}
