/**
 * Answers from the cache, fills it, and lets equal calls of one principal that are under way at the same time share one.
 * Comes after allowlist and budget and before everything that needs the server: a cached answer is given while the server is
 * away.
 * Not here: the answers (cache.ts), the sharing (single-flight.ts), what a server allows (cache-hint.ts).
 *
 * Invariants: a result is kept under what was asked and configured when the call was sent, and only if neither has changed
 * when it comes in; a call that goes on with something begun before is neither answered from here nor kept nor shared.
 */
import { isHostError } from '../kernel/errors.js';
import type { Question, ResponseCache } from './cache.js';
import { cacheHint } from './cache-hint.js';
import { argumentsHash } from './canonical-json.js';
import { compositeKey, principalKey } from './composite-key.js';
import {
  type Call,
  CallResult,
  type Done,
  type Over,
  type Principal,
  type Send,
  type Stage,
  type ToolTraits,
} from './operation.js';
import type { SingleFlight } from './single-flight.js';

export interface CacheStageParts {
  readonly cache: ResponseCache;
  readonly flights: SingleFlight;
  /** False when the cache is off for the server, or the call goes to an instance of its caller's own: it then goes past all of this. */
  readonly mayCache: (call: Call) => boolean;
  /** Changes with the configuration of the server, the pins of its tools, and whatever else makes old answers wrong. */
  readonly fingerprintOf: (call: Call) => string | undefined;
  readonly traitsOf: (call: Call) => ToolTraits;
  /** Called before a kept answer or one under way is used: drops them all if the server now knows us as another account. */
  readonly noticeAccount: (call: Call) => void;
}

export const cached = (parts: CacheStageParts): Stage => {
  const { cache, flights, mayCache, fingerprintOf, traitsOf, noticeAccount } = parts;
  const keep = (call: Call, fingerprint: string, result: CallResult) => {
    if (result.isError || result.fromCache) return;
    const hint = cacheHint(result.bytes);
    if (!hint || fingerprintOf(call) !== fingerprint) return;
    cache.put(new AskedBy(call, fingerprint), result, hint, call.notes.epoch);
  };
  return {
    enter: (next, back) => (call) => {
      if (call.relay?.members !== undefined || !mayCache(call)) return next(call);
      const { notes } = call;
      const isShared = mayShare(call, traitsOf(call));
      const fingerprint = fingerprintOf(call) ?? '';
      notes.fingerprint = fingerprint;
      notes.epoch = cache.epoch;
      // Nothing of this tool is kept and nobody may join: the way of nearly every call, with as little as it needs.
      if (!isShared && cache.missesTool(call.server, call.tool)) return next(call);
      noticeAccount(call);
      notes.epoch = cache.epoch;
      const question = new AskedBy(call, fingerprint);
      const answer = cache.get(question);
      if (answer) return back(call, new CallResult(answer.bytes, false, 0, false, answer.era));
      const key = isShared ? flightKey(question, cache.epochOf(call.server), call.relay?.capabilities) : undefined;
      if (key === undefined) next(call);
      else share(flights, key, call, next, back);
    },
    leave: (back) => (call, outcome) => {
      const { fingerprint, landed } = call.notes;
      if (fingerprint !== undefined && outcome instanceof CallResult && outcome.mayHaveTtl)
        keep(call, fingerprint, outcome);
      if (landed) landed(outcome);
      else back(call, outcome);
    },
  };
};

/** Apart, for what it captures is made for every call where it stands. */
function share(flights: SingleFlight, key: string, call: Call, next: Send, back: Over): void {
  const { fingerprint, epoch, argumentsHash: hash } = call.notes;
  const send = (sent: Call, landed: Done) => {
    Object.assign(sent.notes, { fingerprint, epoch, argumentsHash: hash, landed });
    next(sent);
  };
  flights.join(key, call, send, (outcome) => back(call, outcome));
}

/** What a call asks, its arguments hashed once at most. */
class AskedBy implements Question {
  readonly #call: Call;
  readonly fingerprint: string;

  constructor(call: Call, fingerprint: string) {
    this.#call = call;
    this.fingerprint = fingerprint;
  }

  get server(): string {
    return this.#call.server;
  }

  get tool(): string {
    return this.#call.tool;
  }

  get principal(): Principal {
    return this.#call.principal;
  }

  argumentsHash(): string | undefined {
    const { notes } = this.#call;
    if (notes.argumentsHash === undefined) notes.argumentsHash = hashOf(this.#call);
    return notes.argumentsHash ?? undefined;
  }
}

/** Whether arguments without a canonical form may be sent is for others to say; they are equal to nothing. */
function hashOf({ args }: Call): string | null {
  try {
    return argumentsHash(args);
  } catch (error) {
    if (isHostError(error)) return null;
    throw error;
  }
}

/** A call with a key of its own is looked for by that key later: it is made in its own name. */
const mayShare = ({ idempotencyKey }: Call, { isReadOnly, isTrusted }: ToolTraits): boolean =>
  isReadOnly && isTrusted && idempotencyKey === undefined;

/**
 * With the epoch: who asks after a reload must not be given what the server said before. And with what the client can do: a
 * server may answer another one differently.
 */
function flightKey(question: Question, epoch: number, capabilities = ''): string | undefined {
  const hash = question.argumentsHash();
  if (hash === undefined) return undefined;
  const { server, tool, fingerprint, principal } = question;
  return compositeKey(hash, server, tool, fingerprint, String(epoch), capabilities, principalKey(principal));
}
