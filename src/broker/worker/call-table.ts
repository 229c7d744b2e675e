/**
 * Calls in flight: sent over the current connection, sent again or asked for over the next one, ended by the reply, the caller or the
 * deadline.
 * Not here: which tool is meant (remote-tools.ts), connecting (connection-keeper.ts), acknowledging replies (acknowledgements.ts).
 *
 * Invariants: however often a call is sent, it keeps its key and the id of the store to which it was first sent, until a host says that
 * the call did not begin. An error says `not_executed` only if no sending can have arrived. A refusal ends a call only if the call was sent
 * once. Calls and their bytes are bounded.
 */
import { ByteBudget } from '../../kernel/byte-budget.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Execution, HostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { brokerLimits } from '../protocol/limits.js';
import { type AskedCalls, type CallRequest, type HostMessage, requestDigest } from '../protocol/messages.js';
import { type ReplyBody, readReplyBody } from '../protocol/reply-body.js';
import { Acknowledgements, partsOf } from './acknowledgements.js';
import {
  cancelledCall,
  isHandedBack,
  isStale,
  keyConflict,
  lateCall,
  notConnectedCall,
  tooManyBytes,
  tooManyCalls,
} from './call-errors.js';
import type { WorkerConnection } from './connection.js';

export type NewCall = Omit<CallRequest, 'deadlineMs' | 'sentBefore'>;
export type CallResultBody = Extract<ReplyBody, { kind: 'result' }>;

export interface CallWaiter {
  readonly deadlineAtMs: number;
  readonly onProgress: ((params: Buffer) => void) | undefined;
  readonly done: (outcome: CallResultBody | HostError) => void;
}

/** One call. Several callers wait for it if they gave the same key. */
export interface OpenCall {
  /** Gets another key when a host that stops hands the call back. */
  call: NewCall;
  readonly waiters: Map<CallWaiter, Cancel>;
  /** Id of the store to which the call was first sent; undefined: no sending can have arrived. */
  firstStoreId: string | undefined;
  hasReceipt: boolean;
  /** The sending that has no answer yet: the only one so far, or a later one. */
  sending: 'only' | 'later' | undefined;
  cancelTimer: Cancel | undefined;
}

const executionOf = ({ firstStoreId }: OpenCall): Execution =>
  firstStoreId === undefined ? 'not_executed' : 'uncertain';

function latestDeadline({ waiters }: OpenCall): number {
  let latestMs = Number.NEGATIVE_INFINITY;
  for (const { deadlineAtMs } of waiters.keys()) latestMs = Math.max(latestMs, deadlineAtMs);
  return latestMs;
}

/** A late reply to an earlier, cancelled call with the same key does not answer this call. */
const isReplyTo = ({ call }: OpenCall, digest: string | undefined): boolean =>
  !call.isCallersKey || digest === undefined || digest === requestDigest(call.server, call.tool, call.args);

const isSameCall = (one: NewCall, other: NewCall): boolean =>
  one.server === other.server && one.tool === other.tool && one.args.equals(other.args);

const unsent = { firstStoreId: undefined, hasReceipt: false, sending: undefined, cancelTimer: undefined };

const callsMax = 1_024;
const callBytesMax = 64 * 1024 * 1024;
/** Calls that are sent and not answered. The others wait here: a host refuses the 257th of a worker. */
const sentMax = 192;
const cancelsMax = 1_024;
/** Time until a call is sent again after a sending without an answer, or after a refusal if an earlier sending may have arrived. */
const resendMs = 1_000;
/** How often outcomes are asked for: a reply may be lost with its connection or exceed a bound at the host, and a host may have ended. */
const askMs = 5_000;

export interface CallTableParts {
  readonly clock: Clock;
  /** How long a call that was never sent waits for a connection; undefined: until its deadline. */
  readonly connectionWaitMs: number | undefined;
  /** An error shows that the manifest is out of date. */
  readonly stale: () => void;
}

export class CallTable {
  readonly #parts: CallTableParts;
  readonly #calls = new Map<string, OpenCall>();
  /** Calls that wait for another to end, in order. */
  readonly #queue = new Set<OpenCall>();
  #sent = 0;
  /** Cancelled calls that may have arrived, with their deadlines. A host may miss a cancel, so it is repeated until a reply comes. */
  readonly #cancels = new Map<string, number>();
  readonly #acks: Acknowledgements;
  /** Keys of the latest `ask` messages without an answer, by id. */
  readonly #questions = new Map<string, readonly string[]>();
  #cancelAsk: Cancel | undefined;
  #connection: WorkerConnection | undefined;
  #reserved = 0;
  readonly #bytes = new ByteBudget(callBytesMax);
  #droppedReplies = 0;

  constructor(parts: CallTableParts) {
    this.#parts = parts;
    this.#acks = new Acknowledgements(parts.clock);
  }

  /** `droppedReplies`: number of replies for which no caller waited any more. */
  get usage(): { readonly inFlight: number; readonly inFlightBytes: number; readonly droppedReplies: number } {
    return { inFlight: this.#reserved, inFlightBytes: this.#bytes.used, droppedReplies: this.#droppedReplies };
  }

  /** Reserves room for a call. Throws if there is none. The returned function releases it. */
  reserve(bytes: number): () => void {
    if (this.#reserved >= callsMax) throw tooManyCalls(callsMax);
    if (!this.#bytes.take(bytes)) throw tooManyBytes(callBytesMax, this.#bytes.used + bytes);
    this.#reserved++;
    return () => {
      this.#reserved--;
      this.#bytes.release(bytes);
    };
  }

  /** Sends the call, now or when there is a connection. The returned function is called when its caller gives up. */
  start(call: NewCall, waiter: CallWaiter): () => void {
    const known = this.#calls.get(call.key);
    if (known && !isSameCall(known.call, call)) {
      waiter.done(keyConflict(call));
      return () => {};
    }
    const open = known ?? this.#add(call);
    const late = () => this.#leave(open, waiter, lateCall(call, executionOf(open)));
    open.waiters.set(waiter, this.#parts.clock.at(waiter.deadlineAtMs, late));
    if (!known) this.#send(open);
    return () => this.#leave(open, waiter, cancelledCall(call, executionOf(open)));
  }

  /** Calls without a receipt are sent again over the new connection; calls with one are asked for. */
  use(connection: WorkerConnection | undefined): void {
    const before = this.#connection;
    if (before === connection) return;
    this.#connection = connection;
    for (const open of this.#calls.values()) if (open.sending) this.#unanswered(open, before?.isUnread);
    this.#acks.use(connection);
    this.#askAll();
    for (const open of [...this.#calls.values()]) if (!open.hasReceipt) this.#send(open);
  }

  /** A message of the connection in use. */
  heard(message: HostMessage): void {
    switch (message.op) {
      case 'receipt':
        return this.#received(message.key);
      case 'refused':
        return this.#refused(message.key, message.error);
      case 'asked':
        return this.#asked(message.id, message);
      case 'reply':
        return this.#replied(message.key, message.body, message.digest);
      case 'progress':
        return this.#progressed(message.key, message.params);
      case 'serving':
        for (const open of this.#calls.values()) if (open.sending) this.#unanswered(open, false, 0);
        return;
      default:
        return undefined;
    }
  }

  /** Ends all calls. Those that may have arrived are cancelled. */
  fail(errorOf: (call: NewCall, execution: Execution) => HostError): void {
    this.#queue.clear();
    for (const open of [...this.#calls.values()]) {
      this.#cancelAtHost(open, latestDeadline(open));
      this.#end(open, errorOf(open.call, executionOf(open)));
    }
    this.#acks.flush();
  }

  #add(call: NewCall): OpenCall {
    const open: OpenCall = { call, waiters: new Map(), ...unsent };
    this.#calls.set(call.key, open);
    this.#cancels.delete(call.key);
    return open;
  }

  /** Sends now, or once there is a connection and room below `sentMax`. A new call waits `connectionWaitMs` at most. */
  #send(open: OpenCall): void {
    const { clock, connectionWaitMs } = this.#parts;
    const connection = this.#connection;
    const { firstStoreId, hasReceipt, call } = open;
    const isFirst = firstStoreId === undefined;
    if (!connection) {
      if (isFirst && connectionWaitMs !== undefined)
        this.#setTimer(open, connectionWaitMs, () => this.#end(open, notConnectedCall(call)));
      return;
    }
    const deadlineMs = Math.floor(latestDeadline(open) - clock.nowMs());
    if (open.sending || deadlineMs <= 0) return;
    this.#clearTimer(open);
    if (isFirst && this.#sent >= sentMax) return void this.#queue.add(open);
    this.#queue.delete(open);
    if (isFirst) this.#sent++;
    open.firstStoreId ??= connection.storeId;
    open.sending = isFirst ? 'only' : 'later';
    const sentBefore = isFirst ? undefined : { storeId: firstStoreId, hasReceipt };
    const sent = () => {
      if (open.sending && this.#connection === connection)
        this.#setTimer(open, connection.answerMs, () => this.#unanswered(open));
    };
    try {
      const isSent = connection.send({ op: 'call', ...call, deadlineMs, sentBefore }, sent);
      if (!isSent) this.#unanswered(open, true);
    } catch (error) {
      this.#end(open, error as HostError);
    }
  }

  #received(key: string): void {
    const open = this.#calls.get(key);
    if (!open?.sending) return;
    this.#clearTimer(open);
    open.sending = undefined;
    open.hasReceipt = true;
    this.#askLater();
  }

  #refused(key: string, error: HostError): void {
    const open = this.#calls.get(key);
    if (!open?.sending) return;
    const { code, details } = error;
    if (code !== 'transport' && open.sending === 'only') return this.#fail(open, error);
    this.#unanswered(open, details.execution === 'not_executed', details.retryAfterMs);
  }

  /** Sends the call again in a while. `isUnread`: no host has read this sending. */
  #unanswered(open: OpenCall, isUnread = false, delayMs = resendMs): void {
    if (open.sending === 'only' && isUnread) {
      open.firstStoreId = undefined;
      this.#sent--;
    }
    open.sending = undefined;
    this.#setTimer(open, delayMs, () => this.#send(open));
  }

  #replied(key: string, body: Buffer, digest: string | undefined): void {
    this.#acks.add(key);
    this.#cancels.delete(key);
    const open = this.#calls.get(key);
    if (!open || !isReplyTo(open, digest)) {
      this.#droppedReplies++;
      return;
    }
    try {
      const reply = readReplyBody(body);
      if (reply.kind === 'result') this.#end(open, reply);
      else if (isHandedBack(reply.error) && !open.call.isCallersKey) this.#startAgain(open);
      else this.#fail(open, reply.error);
    } catch (error) {
      this.#end(open, error as HostError);
    }
  }

  #progressed(key: string, params: Buffer): void {
    for (const { onProgress } of [...(this.#calls.get(key)?.waiters.keys() ?? [])]) {
      try {
        onProgress?.(params);
      } catch {
        // An error of a listener must not end the call.
      }
    }
  }

  #setTimer(open: OpenCall, delayMs: number, run: () => void): void {
    const { clock } = this.#parts;
    this.#clearTimer(open);
    open.cancelTimer = clock.at(clock.nowMs() + delayMs, () => {
      open.cancelTimer = undefined;
      run();
    });
  }

  #clearTimer(open: OpenCall): void {
    open.cancelTimer?.();
    open.cancelTimer = undefined;
  }

  /** Asks what became of calls with a receipt, and repeats cancels: over each new connection, and every `askMs`. */
  #askAll(): void {
    this.#cancelAsk?.();
    this.#cancelAsk = undefined;
    this.#questions.clear();
    if (!this.#connection) return;
    this.#cancelAgain();
    const keys = [...this.#calls.keys()].filter((key) => this.#isWaiting(key));
    for (const some of partsOf(keys, brokerLimits.keysPerMessage)) this.#ask(some);
    if (keys.length + this.#cancels.size > 0) this.#askLater();
  }

  #askLater(): void {
    const { clock } = this.#parts;
    if (this.#connection) this.#cancelAsk ??= clock.at(clock.nowMs() + askMs, () => this.#askAll());
  }

  #ask(keys: readonly string[]): void {
    const id = newId();
    this.#questions.set(id, keys);
    this.#connection?.send({ op: 'ask', id, keys });
  }

  #asked(id: string, { running, resend }: AskedCalls): void {
    for (const key of resend) {
      const open = this.#calls.get(key);
      if (open && this.#isWaiting(key)) this.#send(open);
    }
    const keys = this.#questions.get(id);
    // A late answer: the calls were asked for again meanwhile.
    if (!keys) return;
    this.#questions.delete(id);
    const isOpen = new Set([...running, ...resend]);
    // The host sent replies with this answer. It may hold more back until this worker has read some.
    const left = keys.filter((key) => this.#isWaiting(key));
    const wasAnswered = keys.some((key) => !isOpen.has(key) && !this.#isWaiting(key));
    if (wasAnswered && left.length > 0) this.#ask(left);
  }

  /** The call has a receipt, and is not about to be sent again. */
  #isWaiting(key: string): boolean {
    const { hasReceipt, sending, cancelTimer } = this.#calls.get(key) ?? unsent;
    return hasReceipt && sending === undefined && cancelTimer === undefined;
  }

  /** One caller gives up. With the last one the call is cancelled. */
  #leave(open: OpenCall, waiter: CallWaiter, error: HostError): void {
    const cancel = open.waiters.get(waiter);
    if (!cancel) return;
    const untilMs = latestDeadline(open);
    cancel();
    open.waiters.delete(waiter);
    if (open.waiters.size === 0) {
      this.#cancelAtHost(open, untilMs);
      this.#forget(open);
    }
    waiter.done(error);
  }

  #cancelAtHost({ call, firstStoreId }: OpenCall, untilMs: number): void {
    if (firstStoreId === undefined) return;
    this.#connection?.send({ op: 'cancel', key: call.key });
    if (this.#cancels.size < cancelsMax) this.#cancels.set(call.key, untilMs);
    this.#askLater();
  }

  #cancelAgain(): void {
    const nowMs = this.#parts.clock.nowMs();
    for (const [key, untilMs] of this.#cancels) {
      if (untilMs > nowMs) this.#connection?.send({ op: 'cancel', key });
      else this.#cancels.delete(key);
    }
  }

  #end(open: OpenCall, outcome: CallResultBody | HostError): void {
    this.#forget(open);
    const waiters = [...open.waiters];
    open.waiters.clear();
    for (const [waiter, cancel] of waiters) {
      cancel();
      waiter.done(outcome);
    }
  }

  /** A host refused the call, or answered it with an error. */
  #fail(open: OpenCall, error: HostError): void {
    this.#end(open, error);
    if (isStale(error)) this.#parts.stale();
  }

  #forget(open: OpenCall): void {
    this.#clearTimer(open);
    // The message of the call may still wait to leave. Without a `sending`, it then begins no timer.
    open.sending = undefined;
    this.#queue.delete(open);
    if (!this.#calls.delete(open.call.key) || open.firstStoreId === undefined) return;
    this.#sent--;
    for (const next of this.#queue) {
      if (!this.#connection || this.#sent >= sentMax) break;
      this.#send(next);
    }
  }

  /** The host stopped before the call began. Its key is used up. */
  #startAgain(open: OpenCall): void {
    this.#forget(open);
    Object.assign(open, unsent, { call: { ...open.call, key: newId() } });
    this.#calls.set(open.call.key, open);
    this.#setTimer(open, resendMs, () => this.#send(open));
  }
}
