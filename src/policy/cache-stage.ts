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
import { type Call, CallResult, type Done, type Outcome, type Principal, type Stage, type ToolTraits } from './call.js';
import { argumentsHash } from './canonical-json.js';
import { jointKey, principalKey } from './joint-key.js';
import type { SingleFlight } from './single-flight.js';

export interface CacheStageParts {
  readonly cache: ResponseCache;
  readonly flights: SingleFlight;
  /** False when the cache is off for the server, or the call goes to an instance of its caller's own: it then goes past all of this. */
  readonly mayCache: (call: Call) => boolean;
  /** Changes with the configuration of the server, the pins of its tools, and whatever else makes old answers wrong. */
  readonly fingerprintOf: (call: Call) => string | undefined;
  readonly traitsOf: (call: Call) => ToolTraits;
}

export const cached =
  ({ cache, flights, mayCache, fingerprintOf, traitsOf }: CacheStageParts): Stage =>
  (next) => {
    const keep = (question: Question, call: Call, result: CallResult, epoch: number) => {
      if (!result.mayHaveTtl || result.isError || result.fromCache) return;
      const hint = cacheHint(result.bytes);
      if (hint && fingerprintOf(call) === question.fingerprint) cache.put(question, result, hint, epoch);
    };
    return (call, done) => {
      if (call.relay?.members !== undefined || !mayCache(call)) return next(call, done);
      const isShared = mayShare(call, traitsOf(call));
      const fingerprint = fingerprintOf(call) ?? '';
      const epoch = cache.epochOf(call.server);
      // Nothing of this tool is kept and nobody may join: the way of nearly every call, with as little as it needs.
      if (!isShared && cache.missesTool(call.server, call.tool)) {
        return next(call, (outcome) => {
          if (outcome instanceof CallResult && outcome.mayHaveTtl)
            keep(new AskedBy(call, fingerprint), call, outcome, epoch);
          done(outcome);
        });
      }
      const question = new AskedBy(call, fingerprint);
      const answer = cache.get(question);
      if (answer) return done(new CallResult(answer.bytes, false, 0, false, answer.era));

      const key = isShared ? flightKey(question, epoch, call.relay?.capabilities) : undefined;
      const kept = (answered: Done) => (outcome: Outcome) => {
        if (!(outcome instanceof Error)) keep(question, call, outcome, epoch);
        answered(outcome);
      };
      if (key === undefined) return next(call, kept(done));
      flights.join(key, call, (sent, answered) => next(sent, kept(answered)), done);
    };
  };

/** What a call asks, its arguments hashed once at most. */
class AskedBy implements Question {
  readonly #call: Call;
  readonly fingerprint: string;
  #hash: string | undefined;
  #isHashed = false;

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
    if (!this.#isHashed) this.#hash = hashOf(this.#call);
    this.#isHashed = true;
    return this.#hash;
  }
}

/** Whether arguments without a canonical form may be sent is for others to say; they are equal to nothing. */
function hashOf({ args }: Call): string | undefined {
  try {
    return argumentsHash(args);
  } catch (error) {
    if (isHostError(error)) return undefined;
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
  return jointKey(hash, server, tool, fingerprint, String(epoch), capabilities, principalKey(principal));
}
