/**
 * A channel over an attached object: a transport of an MCP SDK, or a server in this process. Messages are serialised here, so
 * that the limits of the other transports apply: size, depth, batches and ambiguous members.
 * Not here: attachable objects (attachable.ts), opening (open-attached.ts). The attached transport handles HTTP sessions,
 * tokens and reconnects; a rejected `send` fails only its request.
 * Invariants: frames are sent in order in a separate microtask, so an answer that arrives inside `send` of the transport never
 * arrives inside `send` of the channel. No handler throws into the transport. Messages after `closed` are ignored.
 */
import { ByteBudget } from '../../kernel/byte-budget.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import {
  type Agreement,
  type Channel,
  type ChannelListener,
  type EraRules,
  frameText,
  type MessageOrigin,
  type OutboundFrame,
  type Withdrawal,
} from '../../wire/channel.js';
import { MessageDecoder, newCounters } from '../../wire/envelope.js';
import { encodeHeaderValue } from '../../wire/header-value.js';
import { inboundTooLarge, notOpen, overloaded } from '../../wire/wire-errors.js';
import { checkFacts } from '../http/headers.js';
import { type Attachable, type AttachableTransport, isServerObject, linkTransports } from './attachable.js';
import { closeAbandoned, closeFailed, type ErrorContext, notJson, sendFailed, startFailed } from './attached-errors.js';

export interface AttachedDeps {
  readonly clock: Clock;
  readonly cleanText: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

/** Time for the object to close before it is abandoned. */
export const closeMsMax = 5_000;

interface Sent {
  readonly frame: OutboundFrame;
  readonly abort: AbortController | undefined;
}

/** Origin of a message that names a request which is not in progress. The message reaches no client. */
const endedRequest: MessageOrigin = { id: undefined };

export class AttachedChannel implements Channel {
  readonly kind = 'attached';
  readonly counters = newCounters();
  readonly mirrorsHeaders: boolean;
  readonly #server: string;
  readonly #object: Attachable;
  readonly #transport: AttachableTransport;
  /** End of the linked pair that an attached server is connected to. */
  readonly #far: AttachableTransport | undefined;
  readonly #deps: AttachedDeps;
  readonly #context: ErrorContext;
  readonly #decoder = new MessageDecoder(this.counters);
  #listener: ChannelListener | undefined;
  #isStarted = false;
  #isClosed = false;
  #closing: Promise<void> | undefined;
  #era: EraRules | undefined;
  readonly #outbound = new Set<OutboundFrame>();
  #isScheduled = false;
  /** Frames whose `send` has not settled. The transport may still buffer them. */
  readonly #unsettled = new Set<OutboundFrame>();
  readonly #buffered = new ByteBudget(LIMITS.outboundBytes);
  readonly #requests = new Map<number, Sent>();
  /** Last error that the transport reported. It may explain a later close. */
  #lastError: unknown;

  constructor(server: string, object: Attachable, deps: AttachedDeps) {
    this.#server = server;
    this.#object = object;
    this.#deps = deps;
    this.#context = { server, cleanText: deps.cleanText, now: () => deps.clock.date() };
    const link = isServerObject(object) ? linkTransports(server) : undefined;
    this.#transport = link?.near ?? (object as AttachableTransport);
    this.#far = link?.far;
    this.mirrorsHeaders = this.#transport.hasPerRequestStream === true;
  }

  start(listener: ChannelListener): void {
    this.#listener = listener;
    void this.#start();
  }

  send(frame: OutboundFrame): HostError | undefined {
    if (this.#isClosed) return notOpen(this.#server);
    const refused = frame.http && checkFacts(this.#server, frame.http);
    if (refused) return refused;
    if (!this.#buffered.take(frame.bytes)) return overloaded(this.#server, this.#buffered.used);
    this.#outbound.add(frame);
    this.#schedule();
    return undefined;
  }

  withdraw(frame: OutboundFrame): Withdrawal {
    if (this.#outbound.delete(frame)) {
      this.#buffered.release(frame.bytes);
      return 'unsent';
    }
    const sent = this.#forget(frame.id);
    this.#settled(frame);
    if (!sent?.abort || !this.#era?.closeCancels) return 'notify';
    sent.abort.abort();
    return 'aborted';
  }

  adopt({ era, version }: Agreement): void {
    this.#era = era;
    try {
      this.#transport.setProtocolVersion?.(version);
    } catch (error) {
      this.#deps.onProblem(startFailed(this.#context, error));
    }
  }

  close(): Promise<void> {
    this.#end(this.#closedBecause('the connection was closed'));
    this.#closing ??= this.#closeObject();
    return this.#closing;
  }

  // --- opening

  async #start(): Promise<void> {
    try {
      this.#listen();
      if (isServerObject(this.#object)) await this.#object.connect(this.#far);
      else await this.#transport.start();
    } catch (error) {
      this.#end(startFailed(this.#context, error));
      return;
    }
    this.#isStarted = true;
    this.#schedule();
  }

  /** Also calls handlers that the application set earlier, as the SDKs do. */
  #listen(): void {
    const transport = this.#transport;
    const { onclose, onerror } = transport;
    transport.onmessage = (message: unknown, extra?: unknown) => this.#receive(message, extra);
    transport.onclose = () => {
      this.#guard(() => onclose?.call(transport));
      this.#end(this.#closedBecause('the server closed its end'));
    };
    transport.onerror = (error) => {
      this.#lastError = error;
      this.#guard(() => onerror?.call(transport, error));
    };
  }

  // --- to the server

  #schedule(): void {
    if (this.#isScheduled || !this.#isStarted || this.#outbound.size === 0) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#listener?.beforeWrite?.();
      for (const frame of this.#outbound) {
        this.#outbound.delete(frame);
        this.#hand(frame);
      }
      this.#isScheduled = false;
    });
  }

  #hand(frame: OutboundFrame): void {
    frame.phase = 'written';
    this.#unsettled.add(frame);
    const sent = this.#noteRequest(frame);
    let sending: Promise<unknown>;
    try {
      // Inside the `try`, because `then` of the returned value may also throw.
      sending = Promise.resolve(this.#transport.send(JSON.parse(frameText(frame)), sent && this.#sendOptions(sent)));
    } catch (error) {
      this.#sendFailed(frame, error);
      return;
    }
    sending.then(
      () => this.#settled(frame),
      (error: unknown) => this.#sendFailed(frame, error),
    );
  }

  #noteRequest(frame: OutboundFrame): Sent | undefined {
    if (frame.kind !== 'request' || frame.id === undefined) return undefined;
    const sent: Sent = { frame, abort: this.mirrorsHeaders ? new AbortController() : undefined };
    this.#requests.set(frame.id, sent);
    return sent;
  }

  /** Returns options only for a transport with a stream per request. Other transports get the message alone. */
  #sendOptions({ frame, abort }: Sent): object | undefined {
    if (!abort) return undefined;
    const headers = frame.http?.params?.map(
      ([name, value]) => [`Mcp-Param-${name}`, encodeHeaderValue(value)] as const,
    );
    return {
      requestSignal: abort.signal,
      onRequestStreamEnd: () => this.#sendFailed(frame, new Error('the response ended without an answer')),
      ...(headers === undefined ? {} : { headers: Object.fromEntries(headers) }),
    };
  }

  #sendFailed(frame: OutboundFrame, error: unknown): void {
    this.#settled(frame);
    // A notification or answer that cannot be sent is dropped, as the protocol allows.
    if (this.#forget(frame.id) && !this.#isClosed) this.#listener?.failed(frame, sendFailed(this.#context, error));
  }

  #settled(frame: OutboundFrame): void {
    if (this.#unsettled.delete(frame)) this.#buffered.release(frame.bytes);
  }

  #forget(id: number | undefined): Sent | undefined {
    const sent = id === undefined ? undefined : this.#requests.get(id);
    if (sent) this.#requests.delete(sent.frame.id as number);
    return sent;
  }

  // --- from the server

  /** Returns the error of a refused message. The linked transport rejects with it; the transports of the SDKs ignore it. */
  #receive(message: unknown, extra: unknown): HostError | undefined {
    if (this.#isClosed) return notOpen(this.#server);
    let bytes: Buffer;
    try {
      const text = JSON.stringify(message) as string | undefined;
      if (text === undefined) throw new TypeError('it has no JSON form');
      bytes = Buffer.from(text);
    } catch (error) {
      return this.#refuse(message, notJson(this.#context, error));
    }
    if (bytes.length > LIMITS.frameBytes) return this.#refuse(message, inboundTooLarge(this.#server, bytes.length));
    const origin = this.#originOf(extra);
    this.#decoder.decode(bytes, 0, bytes.length, (envelope) => {
      if (this.#isClosed) return;
      const isAnswer = envelope.kind === 'result' || envelope.kind === 'error';
      if (isAnswer) this.#forget(envelope.numericId());
      this.#listener?.message(envelope, isAnswer ? undefined : origin);
    });
    return undefined;
  }

  #originOf(extra: unknown): MessageOrigin | undefined {
    const related = relatedRequestId(extra);
    if (related === undefined) return undefined;
    return (typeof related === 'number' ? this.#requests.get(related)?.frame : undefined) ?? endedRequest;
  }

  /** Fails the request that the message would have answered. Any other message is dropped and counted. */
  #refuse(message: unknown, error: HostError): HostError {
    this.counters.junk++;
    const sent = this.#forget(answeredId(message));
    if (sent) {
      sent.frame.phase = 'answered';
      this.#listener?.failed(sent.frame, error.with({ phase: 'answered' }));
    }
    return error;
  }

  // --- the end

  #end(error: HostError): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#outbound.clear();
    this.#unsettled.clear();
    this.#buffered.release(this.#buffered.used);
    const requests = [...this.#requests.values()];
    this.#requests.clear();
    for (const { abort } of requests) abort?.abort();
    this.#listener?.closed(error);
  }

  #closedBecause(what: string): HostError {
    const { server } = this.#context;
    const cause = this.#lastError;
    const options = { server, reason: 'closed', ...(cause === undefined ? {} : { cause }) };
    return new HostError('transport', `server '${server}': ${what}`, options);
  }

  /** Never rejects. Resolves when the object has closed, has failed to close, or after `closeMsMax`. */
  #closeObject(): Promise<void> {
    const { clock, onProblem } = this.#deps;
    return new Promise((resolve) => {
      const cancel = clock.at(clock.nowMs() + closeMsMax, () => {
        onProblem(closeAbandoned(this.#server, closeMsMax));
        resolve();
      });
      const done = () => {
        cancel();
        resolve();
      };
      this.#closeBoth().then(done, (error: unknown) => {
        onProblem(closeFailed(this.#context, error));
        done();
      });
    });
  }

  /** Also closes the far end of the pair, because a server may not close it. */
  async #closeBoth(): Promise<void> {
    try {
      await this.#object.close();
    } finally {
      await this.#far?.close();
    }
  }

  #guard(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#deps.onProblem(error);
    }
  }
}

/** Returns the id of the answered request; undefined for any other message, and if reading it throws. */
function answeredId(message: unknown): number | undefined {
  try {
    const { id, method } = message as { id?: unknown; method?: unknown };
    return typeof id === 'number' && method === undefined ? id : undefined;
  } catch {
    return undefined;
  }
}

function relatedRequestId(extra: unknown): unknown {
  if (typeof extra !== 'object' || extra === null) return undefined;
  try {
    return (extra as { relatedRequestId?: unknown }).relatedRequestId ?? undefined;
  } catch {
    return undefined;
  }
}
