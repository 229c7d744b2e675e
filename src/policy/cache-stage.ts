/**
 * Answers from the cache, fills it, and lets equal concurrent operations of one principal share one request. Runs before all
 * stages that need the server, so a cached answer is available while the server is down.
 * Not here: storage (cache.ts), sharing (single-flight.ts).
 *
 * Invariants: a result is cached under the arguments and configuration of its request, and only if neither has changed when it
 * arrives. A call that continues an earlier one is neither cached nor shared.
 */
import { isHostError } from '../kernel/errors.js';
import { type CachedCall, cacheHint, type Question, type ResponseCache } from './cache.js';
import { argumentsHash } from './canonical-json.js';
import { compositeKey, principalKey } from './composite-key.js';
import {
  type Back,
  type Call,
  CallResult,
  type Done,
  type Item,
  type Operation,
  type Principal,
  type Send,
  type Stage,
  type ToolTraits,
} from './operation.js';
import type { SingleFlight } from './single-flight.js';

export interface CallCacheParts {
  readonly cache: ResponseCache<CachedCall>;
  readonly flights: SingleFlight;
  /** False if the cache is off for the server, or the call goes to a client instance. The call then skips this stage. */
  readonly mayCache: (call: Call) => boolean;
  /** Changes with the definition of the server; a changed fingerprint invalidates old answers. */
  readonly fingerprintOf: (call: Call) => string | undefined;
  readonly traitsOf: (call: Call) => ToolTraits;
  /** Called before a cached or shared answer is used. If the account at the server has changed, all answers of the server are dropped. */
  readonly noticeAccount: (operation: Operation) => void;
}

export const cachedCalls = (parts: CallCacheParts): Stage<Call> => {
  const { cache, flights, mayCache, fingerprintOf, traitsOf, noticeAccount } = parts;
  const store = (call: Call, fingerprint: string, result: CallResult) => {
    if (result.isError || result.fromCache) return;
    const hint = cacheHint(result.bytes);
    if (!hint || fingerprintOf(call) !== fingerprint) return;
    cache.put(new CallQuestion(call, fingerprint), result, hint, call.stage.epoch ?? 0);
  };
  return {
    enter: (next, back) => (call) => {
      if (call.relay?.members !== undefined || !mayCache(call)) return next(call);
      const { stage } = call;
      const isShared = mayShare(call, traitsOf(call));
      const fingerprint = fingerprintOf(call) ?? '';
      stage.fingerprint = fingerprint;
      stage.epoch = cache.epoch;
      // Fast path of nearly every call: nothing of this tool is cached, and the call cannot be shared.
      if (!isShared && cache.misses(call.server, call.tool)) return next(call);
      noticeAccount(call);
      stage.epoch = cache.epoch;
      const question = new CallQuestion(call, fingerprint);
      const answer = cache.get(question);
      if (answer) return back(call, new CallResult(answer.bytes, false, 0, false, answer.era));
      const key = isShared ? flightKey(call, question, cache.epochOf(call.server, call.tool)) : undefined;
      if (key === undefined) next(call);
      else share(flights, key, call, next as Send, back as Back);
    },
    leave: (back) => (call, outcome) => {
      const { fingerprint, onSharedOutcome } = call.stage;
      if (fingerprint !== undefined && outcome instanceof CallResult && outcome.mayHaveTtl)
        store(call, fingerprint, outcome);
      if (onSharedOutcome) onSharedOutcome(outcome);
      else back(call, outcome);
    },
  };
};

export interface ListCacheParts {
  readonly cache: ResponseCache<readonly Item[]>;
  readonly flights: SingleFlight;
  readonly mayCache: (operation: Operation) => boolean;
  readonly noticeAccount: (operation: Operation) => void;
}

/** Lists and reads: all of them may be shared. */
export const cachedLists = ({ cache, flights, mayCache, noticeAccount }: ListCacheParts): Stage => ({
  enter: (next, back) => (operation) => {
    const { server, method, uri, principal } = operation;
    noticeAccount(operation);
    const items = cache.get(listQuestion(operation));
    if (items) return back(operation, { items, ttlMs: 0, isPublic: false });
    const key = compositeKey(server, method, uri, principalKey(principal));
    share(flights, key, operation, next, back, () => cache.epochOf(server, method));
  },
  leave: (back) => (operation, outcome) => {
    const { epoch, onSharedOutcome } = operation.stage;
    if (epoch !== undefined && 'items' in outcome && mayCache(operation))
      cache.put(listQuestion(operation), outcome.items, outcome, epoch);
    if (onSharedOutcome) onSharedOutcome(outcome);
    else back(operation, outcome);
  },
});

export const listQuestion = ({
  server,
  method,
  uri,
  principal,
}: Pick<Operation, 'server' | 'method' | 'uri' | 'principal'>): Question => ({
  server,
  subject: method,
  fingerprint: '',
  principal,
  argumentsKey: () => uri,
});

/** Hoisted: a closure in `enter` would be allocated on every call. */
function share(
  flights: SingleFlight,
  key: string,
  operation: Operation,
  next: Send,
  back: Back,
  version?: () => number,
): void {
  const { fingerprint, epoch, argumentsHash: hash } = operation.stage;
  const send = (sent: Operation, onSharedOutcome: Done) => {
    Object.assign(sent.stage, { fingerprint, epoch, argumentsHash: hash, onSharedOutcome });
    next(sent);
  };
  flights.join(key, operation, send, (outcome) => back(operation, outcome), version);
}

/** Hashes the arguments of its call at most once. */
class CallQuestion implements Question {
  readonly #call: Call;
  readonly fingerprint: string;

  constructor(call: Call, fingerprint: string) {
    this.#call = call;
    this.fingerprint = fingerprint;
  }

  get server(): string {
    return this.#call.server;
  }

  get subject(): string {
    return this.#call.tool;
  }

  get principal(): Principal {
    return this.#call.principal;
  }

  argumentsKey(): string | undefined {
    const { stage } = this.#call;
    if (stage.argumentsHash === undefined) stage.argumentsHash = hashOf(this.#call);
    return stage.argumentsHash ?? undefined;
  }
}

/** Null: arguments without a canonical form equal no others. Other stages decide whether they may be sent. */
function hashOf({ args }: Call): string | null {
  try {
    return argumentsHash(args);
  } catch (error) {
    if (isHostError(error)) return null;
    throw error;
  }
}

/** A call with an idempotency key is later looked up by that key, so it is sent on its own. */
const mayShare = ({ idempotencyKey }: Call, { isReadOnly, isTrusted }: ToolTraits): boolean =>
  isReadOnly && isTrusted && idempotencyKey === undefined;

/** The epoch is included because a call after a reload must not get an older answer. Capabilities may change the answer. */
function flightKey({ relay }: Call, question: Question, epoch: number): string | undefined {
  const hash = question.argumentsKey();
  if (hash === undefined) return undefined;
  const { server, subject, fingerprint, principal } = question;
  const capabilities = relay?.capabilities ?? '';
  return compositeKey(hash, server, subject, fingerprint, String(epoch), capabilities, principalKey(principal));
}
