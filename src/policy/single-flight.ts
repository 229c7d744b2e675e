/**
 * One call for many callers who ask the same at the same time. Only for calls that may as well have been made once: whoever
 * hands them in answers for the tool being read-only and for the key saying everything that makes two calls equal.
 * The shared call belongs to nobody: a caller that leaves, leaves alone, and the last one cancels it. Errors are shared too.
 * Not here: keeping the answer for later (cache.ts).
 * What the server asks while it works on a shared call nobody can answer for the others, so it is refused; a caller that is
 * alone with its call is asked. Either way nobody joins it from then on.
 *
 * Invariants: joining and starting are decided in one tick, so that a thousand equal calls are one; each caller gets bytes
 * that no other caller holds; a caller waits no longer than its own deadline; an answer that wants to be gone on with
 * (`input_required`) is one caller's.
 */
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { InboundRequest } from '../wire/inbound-requests.js';
import { RPC } from '../wire/rpc-codes.js';
import { isComplete } from './cache-hint.js';
import { type Call, type CallRelay, CallResult, type Done, type Outcome, withChanges } from './operation.js';

/**
 * The shared call runs to the deadline of its first caller. Whoever has this much more time than that makes a call of its
 * own; with less it may be told of a timeout so much too early, which is the price of not sending a thousand.
 */
const deadlineSlackMs = 1_000;

/** Past these a call goes alone, to where calls have to queue. */
const flightsMax = 10_000;
const callersPerFlightMax = 10_000;

/** So many bytes of copies are made for one answer; the callers left over share the next call. */
const landingBytesMax = 64 * 1024 * 1024;

/** Sends a call and tells how it went. */
export type SendShared = (call: Call, done: Done) => void;

interface Caller {
  readonly call: Call;
  readonly done: Done;
  stopWatching(): void;
}

interface Flight {
  readonly key: string;
  readonly send: SendShared;
  readonly deadlineAtMs: number;
  readonly callers: Set<Caller>;
  readonly abort: AbortController;
}

export class SingleFlight {
  readonly #clock: Clock;
  readonly #flights = new Map<string, Flight>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Shared calls under way. */
  get flying(): number {
    return this.#flights.size;
  }

  join(key: string, call: Call, send: SendShared, done: Done): void {
    if (call.signal?.aborted) return done(left(call, 'cancelled', 'not_executed'));
    const flight = this.#flights.get(key);
    if (flight && call.deadlineAtMs <= flight.deadlineAtMs + deadlineSlackMs) {
      if (flight.callers.size >= callersPerFlightMax) return send(call, done);
      return this.#board(flight, call, done);
    }
    return !flight && this.#flights.size >= flightsMax ? send(call, done) : this.#start(key, call, send, done);
  }

  #start(key: string, call: Call, send: SendShared, done: Done): void {
    const { deadlineAtMs } = call;
    const flight: Flight = { key, send, deadlineAtMs, callers: new Set(), abort: new AbortController() };
    this.#flights.set(key, flight);
    this.#board(flight, call, done);
    const onProgress = call.onProgress && ((params: Buffer) => tell(flight, params));
    const landed = (outcome: Outcome) => this.#land(flight, outcome);
    try {
      const relay = this.#relay(flight, call);
      flight.send(withChanges(call, { signal: flight.abort.signal, onProgress, relay }), landed);
    } catch (error) {
      landed(error as Error);
    }
  }

  /** The words are those of who came first; what the server says goes to whoever is there then. */
  #relay(flight: Flight, { relay }: Call): CallRelay {
    return {
      ...relay,
      onServerRequest: (request) => this.#ask(flight, request),
      onServerNotification: (method, params) =>
        each(flight, ({ relay: own }) => own?.onServerNotification?.(method, params && Buffer.from(params))),
    };
  }

  #ask(flight: Flight, request: InboundRequest): void {
    // Whoever came now would get an answer that depends on what another one said.
    this.#forget(flight);
    const [caller, ...others] = flight.callers;
    if (others.length > 0) return request.refuse(RPC.internalError, sharedBy(flight.callers.size));
    const { onServerRequest } = caller?.call.relay ?? {};
    if (onServerRequest) onServerRequest(request);
    else
      request.refuse(RPC.methodNotFound, `the client cannot be asked for ${request.method.slice(0, methodCharsMax)}`);
  }

  #land(flight: Flight, outcome: Outcome): void {
    const callers = this.#end(flight);
    if (outcome instanceof Error) {
      for (const { done } of callers) done(outcome);
      return;
    }
    if (callers.length > 1 && !isComplete(outcome.bytes)) return apart(flight, callers, outcome);
    // All copies before the first caller has its answer: what it does to the bytes then is its own affair.
    const copiesMax = Math.floor(landingBytesMax / Math.max(1, outcome.bytes.length));
    const answers = callers.map((_, i) => (i === 0 ? outcome : i <= copiesMax ? copyOf(outcome) : undefined));
    callers.forEach(({ call, done }, i) => {
      const answer = answers[i];
      if (answer) done(answer);
      else this.join(flight.key, call, flight.send, done);
    });
  }

  #board(flight: Flight, call: Call, done: Done): void {
    const leave = (code: 'timeout' | 'cancelled') => {
      caller.stopWatching();
      flight.callers.delete(caller);
      if (flight.callers.size === 0) this.#abandon(flight);
      done(left(call, code, 'uncertain'));
    };
    const onAbort = () => leave('cancelled');
    // Who has as much time as the shared call hears of the timeout from it, with all it knows.
    const isShorter = call.deadlineAtMs < flight.deadlineAtMs;
    const cancelTimer = isShorter ? this.#clock.at(call.deadlineAtMs, () => leave('timeout')) : undefined;
    call.signal?.addEventListener('abort', onAbort, { once: true });
    const stopWatching = () => {
      cancelTimer?.();
      call.signal?.removeEventListener('abort', onAbort);
    };
    const caller: Caller = { call, done, stopWatching };
    flight.callers.add(caller);
  }

  /** Nobody waits any more, and nobody may join what is being cancelled. */
  #abandon(flight: Flight): void {
    this.#forget(flight);
    flight.abort.abort();
  }

  /** From here on the callers are answered; who asks now asks anew. */
  #end(flight: Flight): Caller[] {
    this.#forget(flight);
    const callers = [...flight.callers];
    flight.callers.clear();
    for (const caller of callers) caller.stopWatching();
    return callers;
  }

  #forget(flight: Flight): void {
    if (this.#flights.get(flight.key) === flight) this.#flights.delete(flight.key);
  }
}

const copyOf = ({ bytes, isError, run, mayHaveTtl, era }: CallResult): CallResult =>
  new CallResult(Buffer.from(bytes), isError, run, mayHaveTtl, era);

const methodCharsMax = 100;

const sharedBy = (callers: number): string =>
  `ambiguous: ${callers} equal calls share this request, and none of them can be asked for the others; set isolation: per-client`;

/** Only the first can go on with this answer; each of the others makes its own call. */
function apart({ send }: Flight, [first, ...others]: readonly Caller[], outcome: CallResult): void {
  first?.done(outcome);
  for (const { call, done } of others) {
    try {
      send(call, done);
    } catch (error) {
      done(error as Error);
    }
  }
}

/** Whoever asked for progress gets its own bytes of it. */
const tell = (flight: Flight, params: Buffer): void => each(flight, (call) => call.onProgress?.(Buffer.from(params)));

/** One that throws does not keep it from the others. */
function each(flight: Flight, told: (call: Call) => void): void {
  for (const { call } of flight.callers) {
    try {
      told(call);
    } catch {
      // It is a courtesy: its receiver's trouble is no reason to fail a call, least of all another's.
    }
  }
}

const left = (call: Call, code: 'timeout' | 'cancelled', execution: 'not_executed' | 'uncertain'): HostError =>
  new HostError(
    code,
    `server '${call.server}': ${code === 'timeout' ? 'no answer by the deadline' : 'the call was cancelled'}`,
    { server: call.server, tool: call.tool, execution, hint: 'the tool is read-only: the call can be sent again' },
  );
