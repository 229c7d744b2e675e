/**
 * One shared request for equal concurrent operations. The caller of `join` guarantees that the tool is read-only, and that the
 * key contains everything in which two operations can differ. Errors are shared too. The last caller that leaves cancels the
 * request. A question of the server is refused while several callers share the request.
 * Not here: storing the answer (cache.ts).
 *
 * Invariants: `join` decides synchronously, so a thousand equal operations send one request. Each caller gets its own copy of
 * the bytes and waits no longer than its own deadline. A caller joins only a request for its own version of the data. Only one
 * caller gets an answer that must be continued (`input_required`).
 */
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { InboundRequest } from '../wire/inbound-requests.js';
import { RPC } from '../wire/methods.js';
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
 * The shared request has the deadline of its first caller. A caller whose deadline is later by at most this much joins it and
 * may time out that much too early. A caller with a later deadline sends its own request.
 */
const deadlineSlackMs = 1_000;

/** Beyond these bounds an operation is sent on its own. */
const flightsMax = 10_000;
const callersPerFlightMax = 10_000;

/** Bound of the copies of one answer in bytes; the remaining callers share another request. */
const copiedBytesMax = 64 * 1024 * 1024;

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
  /** The operation that is sent for all callers; its `epoch` is undefined until the request is sent. */
  sent: Operation | undefined;
}

export class SingleFlight {
  readonly #clock: Clock;
  readonly #flights = new Map<string, Flight>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#flights.size;
  }

  /** `version`: current version of the read data. A caller joins only a request that was sent in the same version. */
  join(key: string, operation: Operation, send: SendShared, done: Done, version?: () => number): void {
    if (operation.signal?.aborted) return done(left(operation, 'cancelled', 'not_executed'));
    const flight = this.#flights.get(key);
    if (flight && isCurrent(flight, version) && operation.deadlineAtMs <= flight.deadlineAtMs + deadlineSlackMs) {
      if (flight.callers.size >= callersPerFlightMax) return send(operation, done);
      return this.#addCaller(flight, operation, done);
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
    this.#addCaller(flight, operation, done);
    const onProgress = operation.onProgress && ((params: Buffer) => reportProgress(flight, params));
    const finished = (outcome: Outcome) => this.#finish(flight, outcome);
    try {
      const relay = operation.kind === 'call' ? this.#relay(flight, operation) : undefined;
      flight.sent = withChanges(operation, { signal: abort.signal, onProgress, relay });
      flight.send(flight.sent, finished);
    } catch (error) {
      finished(error as Error);
    }
  }

  /** Relays the first caller's additions; notifications of the server go to every current caller. */
  #relay(flight: Flight, { relay }: Operation): CallRelay {
    return {
      ...relay,
      onServerRequest: (request) => this.#onServerRequest(flight, request),
      onServerNotification: (method, params) =>
        each(flight, ({ relay: own }) => own?.onServerNotification?.(method, params && Buffer.from(params))),
    };
  }

  #onServerRequest(flight: Flight, request: InboundRequest): void {
    // The answer now depends on the reply of one caller, so no other caller may join.
    this.#forget(flight);
    const [caller, ...others] = flight.callers;
    if (others.length > 0) return request.refuse(RPC.internalError, sharedBy(flight.callers.size));
    const { onServerRequest } = caller?.operation.relay ?? {};
    if (onServerRequest) onServerRequest(request);
    else
      request.refuse(RPC.methodNotFound, `the client cannot be asked for ${request.method.slice(0, methodCharsMax)}`);
  }

  #finish(flight: Flight, outcome: Outcome): void {
    const callers = this.#end(flight);
    if (outcome instanceof Error) {
      for (const { done } of callers) done(outcome);
      return;
    }
    if (callers.length > 1 && outcome instanceof CallResult && !isComplete(outcome.bytes))
      return sendSeparately(flight, callers, outcome);
    // All copies are made before the first caller gets the original bytes, which it may change.
    const copiesMax = Math.floor(copiedBytesMax / Math.max(1, bytesOf(outcome)));
    const answers = callers.map((_, i) => (i === 0 ? outcome : i <= copiesMax ? copyOf(outcome) : undefined));
    callers.forEach(({ operation, done }, i) => {
      const answer = answers[i];
      if (answer) done(answer);
      else this.join(flight.key, operation, flight.send, done);
    });
  }

  #addCaller(flight: Flight, operation: Operation, done: Done): void {
    const { signal, deadlineAtMs } = operation;
    const leave = (code: 'timeout' | 'cancelled') => {
      caller.stopWatching();
      flight.callers.delete(caller);
      if (flight.callers.size === 0) this.#abandon(flight);
      done(left(operation, code, 'uncertain'));
    };
    const onAbort = () => leave('cancelled');
    // A caller with the same deadline gets the timeout of the shared request, with all its details.
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

  /** Cancels a request without callers; no other caller may join it. */
  #abandon(flight: Flight): void {
    this.#forget(flight);
    flight.abort.abort();
  }

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

/** Only the first caller can continue this answer; each other caller sends its own request. */
function sendSeparately({ send }: Flight, [first, ...others]: readonly Caller[], outcome: CallResult): void {
  first?.done(outcome);
  for (const { operation, done } of others) {
    try {
      send(operation, done);
    } catch (error) {
      done(error as Error);
    }
  }
}

/** Each caller that requested progress gets its own copy of the bytes. */
const reportProgress = (flight: Flight, params: Buffer): void =>
  each(flight, (operation) => operation.onProgress?.(Buffer.from(params)));

function each(flight: Flight, notify: (operation: Operation) => void): void {
  for (const { operation } of flight.callers) {
    try {
      notify(operation);
    } catch {
      // A listener that throws must not fail the call of another caller.
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
    { ...namesOf(operation), execution, hint: 'the request changes nothing on the server and can be sent again' },
  );
