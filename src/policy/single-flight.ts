/**
 * One request for many equal operations at the same time. Only for operations that may as well have been sent once: the caller of
 * `join` answers for a read-only tool, and for a key that holds everything in which two operations can differ.
 * A caller that leaves, leaves alone; the last one cancels the shared request. Errors are shared too.
 * Not here: storing the answer (cache.ts).
 * A request of the server to a client is refused while several callers share; a single caller receives it. Either way no other
 * caller joins from then on.
 *
 * Invariants: joining and starting are decided in one tick, so that a thousand equal operations are one; each caller gets its
 * own copy of the bytes; a caller waits no longer than its own deadline; no caller gets an answer that was requested before the
 * version in which it joined; only one caller gets an answer that must be continued (`input_required`).
 */
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { InboundRequest } from '../wire/inbound-requests.js';
import { RPC } from '../wire/rpc-codes.js';
import { isComplete } from './cache.js';
import {
  type CallRelay,
  CallResult,
  copyItems,
  type Done,
  namesOf,
  type Operation,
  type Outcome,
  type Result,
  withChanges,
} from './operation.js';

/**
 * The shared request runs to the deadline of its first caller. A caller whose deadline is later by more than this sends its own;
 * with less it may get a timeout that much too early.
 */
const deadlineSlackMs = 1_000;

/** Past these an operation goes alone, to where operations queue. */
const flightsMax = 10_000;
const callersPerFlightMax = 10_000;

/** Bytes of copies made of one answer; the callers left over share the next request. */
const landingBytesMax = 64 * 1024 * 1024;

/** Sends an operation and reports its outcome. */
export type SendShared = (operation: Operation, done: Done) => void;

interface Caller {
  readonly operation: Operation;
  readonly done: Done;
  stopWatching(): void;
}

interface Flight {
  readonly key: string;
  readonly send: SendShared;
  readonly deadlineAtMs: number;
  readonly callers: Set<Caller>;
  readonly abort: AbortController;
  /** The operation that is sent for all; its `epoch` is undefined until the request is sent. */
  sent: Operation | undefined;
}

export class SingleFlight {
  readonly #clock: Clock;
  readonly #flights = new Map<string, Flight>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Shared requests in flight. */
  get flying(): number {
    return this.#flights.size;
  }

  /** `version`: of what is read, now; an answer is good for callers of the version in which it was requested. */
  join(key: string, operation: Operation, send: SendShared, done: Done, version?: () => number): void {
    if (operation.signal?.aborted) return done(left(operation, 'cancelled', 'not_executed'));
    const flight = this.#flights.get(key);
    if (flight && isCurrent(flight, version) && operation.deadlineAtMs <= flight.deadlineAtMs + deadlineSlackMs) {
      if (flight.callers.size >= callersPerFlightMax) return send(operation, done);
      return this.#board(flight, operation, done);
    }
    return !flight && this.#flights.size >= flightsMax
      ? send(operation, done)
      : this.#start(key, operation, send, done);
  }

  #start(key: string, operation: Operation, send: SendShared, done: Done): void {
    const { deadlineAtMs } = operation;
    const abort = new AbortController();
    const flight: Flight = { key, send, deadlineAtMs, callers: new Set(), abort, sent: undefined };
    this.#flights.set(key, flight);
    this.#board(flight, operation, done);
    const onProgress = operation.onProgress && ((params: Buffer) => reportProgress(flight, params));
    const landed = (outcome: Outcome) => this.#land(flight, outcome);
    try {
      const relay = operation.kind === 'call' ? this.#relay(flight, operation) : undefined;
      flight.sent = withChanges(operation, { signal: abort.signal, onProgress, relay });
      flight.send(flight.sent, landed);
    } catch (error) {
      landed(error as Error);
    }
  }

  /** Sends what the first caller relays; messages of the server go to every caller that is there then. */
  #relay(flight: Flight, { relay }: Operation): CallRelay {
    return {
      ...relay,
      onServerRequest: (request) => this.#onServerRequest(flight, request),
      onServerNotification: (method, params) =>
        each(flight, ({ relay: own }) => own?.onServerNotification?.(method, params && Buffer.from(params))),
    };
  }

  #onServerRequest(flight: Flight, request: InboundRequest): void {
    // A caller that joined now would get an answer that depends on what another caller replies.
    this.#forget(flight);
    const [caller, ...others] = flight.callers;
    if (others.length > 0) return request.refuse(RPC.internalError, sharedBy(flight.callers.size));
    const { onServerRequest } = caller?.operation.relay ?? {};
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
    if (callers.length > 1 && outcome instanceof CallResult && !isComplete(outcome.bytes))
      return sendApart(flight, callers, outcome);
    // All copies are made before the first caller has its answer, and may change the bytes.
    const copiesMax = Math.floor(landingBytesMax / Math.max(1, bytesOf(outcome)));
    const answers = callers.map((_, i) => (i === 0 ? outcome : i <= copiesMax ? copyOf(outcome) : undefined));
    callers.forEach(({ operation, done }, i) => {
      const answer = answers[i];
      if (answer) done(answer);
      else this.join(flight.key, operation, flight.send, done);
    });
  }

  #board(flight: Flight, operation: Operation, done: Done): void {
    const { signal, deadlineAtMs } = operation;
    const leave = (code: 'timeout' | 'cancelled') => {
      caller.stopWatching();
      flight.callers.delete(caller);
      if (flight.callers.size === 0) this.#abandon(flight);
      done(left(operation, code, 'uncertain'));
    };
    const onAbort = () => leave('cancelled');
    // A caller with as much time as the shared request gets the timeout from it, with all its details.
    const isShorter = deadlineAtMs < flight.deadlineAtMs;
    const cancelTimer = isShorter ? this.#clock.at(deadlineAtMs, () => leave('timeout')) : undefined;
    signal?.addEventListener('abort', onAbort, { once: true });
    const stopWatching = () => {
      cancelTimer?.();
      signal?.removeEventListener('abort', onAbort);
    };
    const caller: Caller = { operation, done, stopWatching };
    flight.callers.add(caller);
  }

  /** No caller is left, and none may join what is being cancelled. */
  #abandon(flight: Flight): void {
    this.#forget(flight);
    flight.abort.abort();
  }

  /** From here on the callers are answered; a new caller starts a new flight. */
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

function isCurrent({ sent }: Flight, version: (() => number) | undefined): boolean {
  const epoch = sent?.stage.epoch;
  return version === undefined || epoch === undefined || epoch === version();
}

const bytesOf = (result: Result): number =>
  'items' in result ? result.items.reduce((sum, { raw }) => sum + raw.length, 0) : result.bytes.length;

function copyOf(result: Result): Result {
  if ('items' in result) return { ...result, items: copyItems(result.items) };
  if (!(result instanceof CallResult)) return { ...result, bytes: Buffer.from(result.bytes) };
  const { bytes, isError, run, mayHaveTtl, era } = result;
  return new CallResult(Buffer.from(bytes), isError, run, mayHaveTtl, era);
}

const methodCharsMax = 100;

const sharedBy = (callers: number): string =>
  `ambiguous: ${callers} equal calls share this request, and none of them can be asked for the others; set isolation: per-client`;

/** Only the first caller can continue this answer; each of the others sends its own. */
function sendApart({ send }: Flight, [first, ...others]: readonly Caller[], outcome: CallResult): void {
  first?.done(outcome);
  for (const { operation, done } of others) {
    try {
      send(operation, done);
    } catch (error) {
      done(error as Error);
    }
  }
}

/** Each caller that asked for progress gets its own bytes. */
const reportProgress = (flight: Flight, params: Buffer): void =>
  each(flight, (operation) => operation.onProgress?.(Buffer.from(params)));

/** A caller that throws does not keep it from the others. */
function each(flight: Flight, notify: (operation: Operation) => void): void {
  for (const { operation } of flight.callers) {
    try {
      notify(operation);
    } catch {
      // A failing listener must not fail a call, least of all that of another caller.
    }
  }
}

const left = (
  operation: Operation,
  code: 'timeout' | 'cancelled',
  execution: 'not_executed' | 'uncertain',
): HostError =>
  new HostError(
    code,
    `server '${operation.server}': ${operation.tool === undefined ? `${operation.method}: ` : ''}${
      code === 'timeout' ? 'no answer by the deadline' : 'cancelled by the caller'
    }`,
    { ...namesOf(operation), execution, hint: 'it changes nothing on the server and can be sent again' },
  );
