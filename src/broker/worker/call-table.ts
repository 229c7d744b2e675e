/**
 * Calls on their way: sent over the link there is, sent again over the next one, ended by their reply, their caller or their time.
 * Not here: which tool is meant (remote-tools.ts), the links themselves (link-keeper.ts).
 *
 * Invariants: a call has one key, made once and kept over every sending, so that it is one request for whoever receives it; what
 * is said of a call that ended without a reply is `not_executed` only if no sending of it can have been held; a reply that
 * nobody waits for is dropped; calls and their bytes are bounded.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { type Execution, type HostError, isHostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { toBuffer } from '../../wire/json-text.js';
import { type Reply, requestDigest } from '../messages.js';
import { type NewRequest, ttlMsMax, type WorkerLink } from '../ports.js';
import { callBytesMax, callsMax } from './call-bounds.js';
import {
  cancelledCall,
  isStale,
  keyConflict,
  noLink,
  notAResult,
  tooManyBytes,
  tooManyCalls,
  tooSlow,
} from './call-errors.js';
import type { CallWords, Dialect } from './dialect.js';

/** Cancels that wait for a link. */
const cancelsMax = 1_024;
/** After a receipt that did not come, or a refusal of what may be held already. */
const resendMs = 1_000;

export interface NewCall extends Omit<CallWords, 'deadlineMs' | 'sent'> {
  /** Of the arguments. */
  readonly bytes: number;
}

export interface CallWaiter {
  readonly deadlineAtMs: number;
  readonly onProgress: ((params: Buffer) => void) | undefined;
  readonly done: (outcome: Extract<Reply, { kind: 'result' }> | Error) => void;
}

export interface CallTableParts {
  readonly clock: Clock;
  readonly dialect: Dialect;
  /** How long a call that was never sent waits for a link; undefined: as long as its caller does. */
  readonly linkWaitMs: number | undefined;
  /** A sending says that this link is over. */
  readonly broken: (link: WorkerLink, error: HostError) => void;
  /** A reply says that the manifest is not what we think. */
  readonly stale: () => void;
}

/** One request, and everybody who waits for it: more than one where callers give the same key. */
interface Pending {
  readonly call: NewCall;
  readonly waiters: Map<CallWaiter, Cancel>;
  /** A sending of it may have arrived. */
  mayBeHeld: boolean;
  /** Of the first that may have: by the clock, and by the wall, which goes on while the machine sleeps. */
  firstSent: { readonly atMs: number; readonly wallMs: number };
  /** The newest of them. */
  sentOn: WorkerLink | undefined;
  cancelResend: Cancel;
  cancelLinkWait: Cancel;
}

export class CallTable {
  readonly #parts: CallTableParts;
  readonly #pending = new Map<string, Pending>();
  /** Key → until when its request may still be run. */
  readonly #cancels = new Map<string, number>();
  #link: WorkerLink | undefined;
  /** Another one for each link: while there is none, this machine may sleep and its clock with it. */
  #clockName = newId();
  #reserved = 0;
  #reservedBytes = 0;
  #dropped = 0;

  constructor(parts: CallTableParts) {
    this.#parts = parts;
  }

  get inFlight(): number {
    return this.#reserved;
  }

  get inFlightBytes(): number {
    return this.#reservedBytes;
  }

  /** Replies that nobody waited for. */
  get dropped(): number {
    return this.#dropped;
  }

  /** A place for a call, from its first moment on. Throws when there is none; what is returned gives it back. */
  reserve(bytes: number): () => void {
    if (this.#reserved >= callsMax) throw tooManyCalls(this.#reserved);
    if (this.#reservedBytes + bytes > callBytesMax) throw tooManyBytes(this.#reservedBytes + bytes);
    this.#reserved++;
    this.#reservedBytes += bytes;
    return () => {
      this.#reserved--;
      this.#reservedBytes -= bytes;
    };
  }

  /** Sends it, now or when there is a link. Returns what takes the waiter off again: nobody else may want it then. */
  start(call: NewCall, waiter: CallWaiter): () => void {
    const { clock } = this.#parts;
    const known = this.#pending.get(call.callKey);
    if (known && !isSameCall(known.call, call)) {
      waiter.done(keyConflict(call));
      return () => {};
    }
    const pending = known ?? this.#add(call);
    // Whoever gave it up before wants it again: the cancel that was not sent is not sent any more.
    this.#cancels.delete(call.callKey);
    pending.waiters.set(
      waiter,
      clock.at(waiter.deadlineAtMs, () => this.#leave(pending, waiter, tooSlow(call, this.#execution(pending)))),
    );
    if (!known && this.#link) this.#send(pending, this.#link);
    return () => this.#leave(pending, waiter, cancelledCall(call, this.#execution(pending)));
  }

  /** From now on calls go this way; those that wait for a reply go there again. */
  use(link: WorkerLink | undefined): void {
    if (this.#link === link) return;
    this.#link = link;
    if (!link) return;
    this.#clockName = newId();
    const nowMs = this.#parts.clock.nowMs();
    for (const [key, untilMs] of this.#cancels) if (untilMs > nowMs) link.cancel(key);
    this.#cancels.clear();
    for (const pending of [...this.#pending.values()]) this.#send(pending, link);
  }

  replied(id: string, body: Buffer): void {
    const pending = this.#pending.get(id);
    if (!pending) {
      this.#dropped++;
      return;
    }
    let reply: Reply;
    try {
      reply = this.#parts.dialect.readReply(body);
    } catch (error) {
      return this.#end(pending, error as Error);
    }
    if (isOfAnother(reply, pending.call)) return this.#end(pending, keyConflict(pending.call));
    switch (reply.kind) {
      case 'result':
        return this.#end(pending, reply);
      case 'error':
        this.#end(pending, reply.error);
        if (isStale(reply.error)) this.#parts.stale();
        return;
      case 'manifest':
        return this.#end(pending, notAResult());
    }
  }

  progress(callKey: string, params: Buffer): void {
    const pending = this.#pending.get(callKey);
    for (const { onProgress } of [...(pending?.waiters.keys() ?? [])]) {
      try {
        onProgress?.(params);
      } catch {
        // Whoever listens must not end the call of whoever waits.
      }
    }
  }

  /** There will be no link any more, and nobody waits for what is under way. */
  fail(errorOf: (call: NewCall, execution: Execution) => HostError): void {
    const link = this.#link;
    this.#link = undefined;
    for (const pending of [...this.#pending.values()]) {
      if (pending.mayBeHeld) link?.cancel(pending.call.callKey);
      this.#end(pending, errorOf(pending.call, this.#execution(pending)));
    }
  }

  #add(call: NewCall): Pending {
    const pending: Pending = {
      call,
      waiters: new Map(),
      mayBeHeld: false,
      firstSent: { atMs: 0, wallMs: 0 },
      sentOn: undefined,
      cancelResend: () => {},
      cancelLinkWait: () => {},
    };
    this.#pending.set(call.callKey, pending);
    if (!this.#link) this.#awaitLink(pending);
    return pending;
  }

  #awaitLink(pending: Pending): void {
    const { clock, linkWaitMs } = this.#parts;
    if (linkWaitMs === undefined) return;
    pending.cancelLinkWait();
    pending.cancelLinkWait = clock.at(clock.nowMs() + linkWaitMs, () => this.#end(pending, noLink(pending.call)));
  }

  #send(pending: Pending, link: WorkerLink): void {
    const { clock } = this.#parts;
    const { callKey, isCallersKey } = pending.call;
    pending.cancelResend();
    pending.cancelLinkWait();
    const couldBeHeld = pending.mayBeHeld;
    const written = this.#written(pending, couldBeHeld);
    if (written === undefined) return;
    if (!couldBeHeld) pending.firstSent = { atMs: clock.nowMs(), wallMs: clock.date().getTime() };
    pending.mayBeHeld = true;
    pending.sentOn = link;
    const isFresh = !couldBeHeld && !isCallersKey;
    link.send({ id: callKey, ...written, isFresh, again: () => this.#written(pending, true) }).catch((error) => {
      if (this.#pending.get(callKey) !== pending) return;
      this.#unsent(pending, link, couldBeHeld, error);
    });
  }

  /** As it is sent now; undefined: nobody waits for it any more. */
  #written(pending: Pending, couldBeHeld: boolean): Pick<NewRequest, 'body' | 'ttlMs'> | undefined {
    const { clock, dialect } = this.#parts;
    // What is rounded up would be time that its caller does not have.
    const ttlMs = Math.floor(this.#deadlineAtMs(pending) - clock.nowMs());
    if (ttlMs <= 0) return undefined;
    const sent = { clock: this.#clockName, atMs: Math.floor(clock.nowMs()) };
    const sentMsAgo = couldBeHeld ? this.#sentMsAgo(pending) : undefined;
    return { ttlMs, body: dialect.callRequest({ ...pending.call, deadlineMs: ttlMs, sentMsAgo, sent }) };
  }

  /** Rather too long than too short: what may have run before a journal began must not be taken for younger than that. */
  #sentMsAgo({ firstSent: { atMs, wallMs } }: Pending): number {
    const { clock } = this.#parts;
    return Math.min(Math.max(clock.nowMs() - atMs, clock.date().getTime() - wallMs), ttlMsMax);
  }

  /** Decided by what the sending said: over means another link, doubt means again, a refusal is the end of the call. */
  #unsent(pending: Pending, link: WorkerLink, couldBeHeld: boolean, error: unknown): void {
    if (!isHostError(error)) return this.#end(pending, error as Error);
    const isSurelyNot = error.details.execution === 'not_executed';
    if (isSurelyNot && !couldBeHeld && pending.sentOn === link) pending.mayBeHeld = false;
    if (error.code === 'transport') {
      if (!pending.mayBeHeld) this.#awaitLink(pending);
      return this.#parts.broken(link, error);
    }
    if (isSurelyNot && !couldBeHeld) return this.#end(pending, error.with({ tool: pending.call.tool }));
    const { clock } = this.#parts;
    pending.cancelResend = clock.at(clock.nowMs() + resendMs, () => {
      if (this.#link) this.#send(pending, this.#link);
    });
  }

  #deadlineAtMs({ waiters }: Pending): number {
    let latestMs = Number.NEGATIVE_INFINITY;
    for (const { deadlineAtMs } of waiters.keys()) latestMs = Math.max(latestMs, deadlineAtMs);
    return latestMs;
  }

  readonly #execution = ({ mayBeHeld }: Pending): Execution => (mayBeHeld ? 'uncertain' : 'not_executed');

  /** One gives up; with the last one the call is given up too. */
  #leave(pending: Pending, waiter: CallWaiter, error: HostError): void {
    const cancel = pending.waiters.get(waiter);
    if (!cancel) return;
    const untilMs = this.#deadlineAtMs(pending);
    cancel();
    pending.waiters.delete(waiter);
    if (pending.waiters.size === 0) {
      this.#forget(pending);
      if (pending.mayBeHeld) this.#cancel(pending.call.callKey, untilMs);
    }
    waiter.done(error);
  }

  #cancel(key: string, untilMs: number): void {
    if (this.#link) this.#link.cancel(key);
    else if (this.#cancels.size < cancelsMax) this.#cancels.set(key, untilMs);
  }

  #end(pending: Pending, outcome: Extract<Reply, { kind: 'result' }> | Error): void {
    this.#forget(pending);
    const waiters = [...pending.waiters];
    pending.waiters.clear();
    for (const [waiter, cancel] of waiters) {
      cancel();
      waiter.done(outcome);
    }
  }

  #forget(pending: Pending): void {
    pending.cancelResend();
    pending.cancelLinkWait();
    this.#pending.delete(pending.call.callKey);
  }
}

/** A worker that ran here before may have used the same key for something else, and its reply is what is there. */
const isOfAnother = (reply: Reply, call: NewCall): boolean =>
  reply.kind !== 'manifest' && reply.of !== undefined && call.isCallersKey && reply.of !== requestDigest(call);

const isSameCall = (one: NewCall, other: NewCall): boolean =>
  one.server === other.server && one.tool === other.tool && toBuffer(one.args).equals(toBuffer(other.args));
