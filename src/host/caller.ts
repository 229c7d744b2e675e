/**
 * A call's way through the host: from what the embedder gives to the stages of policy, and back as a promise.
 * Not here: what each stage decides (policy/), sending (dispatch.ts), what operators hear of it (audit.ts).
 * Invariant: whatever a caller hands in, it gets one promise, which settles once.
 */

import type { ServerDefinition } from '../config/server-definition.js';
import { type CancelSignal, isCancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { KeepAlive } from '../kernel/keep-alive.js';
import { LIMITS } from '../kernel/limits.js';
import { newId } from '../kernel/random.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { allow, denial, type Guard } from '../policy/allowlist.js';
import type { ResponseCache } from '../policy/cache.js';
import { cached } from '../policy/cache-stage.js';
import { budget, type CallBudgets } from '../policy/call-budget.js';
import { concurrency } from '../policy/concurrency.js';
import { gate } from '../policy/gate.js';
import {
  type Call,
  type CallRelay,
  type CallResult,
  embedder,
  type Outcome,
  type Principal,
  pipeline,
  type Send,
  StageNotes,
} from '../policy/operation.js';
import { type PinFacts, pinned, quarantine } from '../policy/pin-stage.js';
import type { Pins } from '../policy/pins.js';
import type { ReconnectWaits } from '../policy/reconnect-waits.js';
import { noteThrottling, refuseThrottled, type ServerThrottle } from '../policy/server-throttle.js';
import { SingleFlight } from '../policy/single-flight.js';
import { type ToolThrottle, throttle } from '../policy/tool-throttle.js';
import type { ToolArguments } from '../session/session.js';
import type { JsonText } from '../wire/frame.js';
import { checkObject } from '../wire/json-text.js';
import type { Audit, CallWatch } from './audit.js';
import type { TargetOf } from './call-target.js';
import { dispatch } from './dispatch.js';
import { type HostCallOptions, noCallOptions, type ToolResult } from './host-interface.js';
import { instanceMissing } from './instances.js';
import type { ManagedServer } from './managed-server.js';

export interface CallerParts {
  readonly clock: Clock;
  readonly guards: () => readonly Guard[];
  readonly pins: Pins;
  readonly budgets: CallBudgets;
  readonly cache: ResponseCache;
  readonly throttle: ToolThrottle;
  readonly serverThrottle: ServerThrottle;
  readonly reconnects: ReconnectWaits;
  /** Throws for a name that is not there. */
  readonly serverOf: (name: string) => ManagedServer;
  readonly findServer: (name: string) => ManagedServer | undefined;
  readonly targetOf: TargetOf;
  /** Throws once the host is closed. */
  readonly mustBeOpen: (server: string) => void;
  readonly clean: (text: string) => string;
  readonly audit: Audit;
  readonly alive: KeepAlive;
}

/** Without a deadline of the caller's own. How long a server may be silent is for its definition to say. */
const callDeadlineMs = 10 * 60_000;

export class Caller {
  readonly #parts: CallerParts;
  readonly #send: Send;
  /** Unguessable once per host; each call adds its number. */
  readonly #id = newId();
  #calls = 0;

  constructor(parts: CallerParts) {
    const { clock, guards, pins, budgets, cache, serverOf, findServer, targetOf, clean, audit } = parts;
    this.#parts = parts;
    // The order is part of the contract: who is refused early changes nothing that comes later.
    const facts: PinFacts = {
      statusOf: (server, tool) => pins.statusOf(server, tool),
      policyOf: (server) => serverOf(server).definition.pins,
      hashesOf: (server, tool) => pins.hashesOf(server, tool),
    };
    this.#send = pipeline(
      allow(guards),
      pinned(facts),
      budget(budgets),
      cached({
        cache,
        flights: new SingleFlight(clock),
        mayCache: ({ server, relay }) => mayCache(serverOf(server).definition, relay),
        // Asked again when the answer is in: by then the server may be gone, and its answer is not kept.
        fingerprintOf: ({ server }) => findServer(server)?.fingerprint,
        traitsOf: ({ server, tool }) => serverOf(server).traitsOf(tool),
        noticeAccount: ({ server }) => serverOf(server).auth?.current(),
      }),
      throttle(parts.throttle),
      refuseThrottled(parts.serverThrottle),
      gate(({ server, relay, principal }) => {
        const managed = serverOf(server);
        return relay === undefined ? managed.circuit : targetOf(managed, relay.instance, principal.id).circuit;
      }, clock),
      concurrency((server) => serverOf(server).slots),
      noteThrottling(parts.serverThrottle),
    )(
      dispatch({
        serverOf,
        targetOf,
        clock,
        reconnects: parts.reconnects,
        clean,
        pinRefusal: (server, tool) => quarantine(facts, server, tool),
        onReplay: audit.replayed,
      }),
      // No call ends here but those that were made here.
      (call, outcome) => this.#over(call as CallUnderWay, outcome),
    );
  }

  call(server: string, tool: string, args: ToolArguments, options: HostCallOptions): Promise<ToolResult> {
    const { clock, audit, alive } = this.#parts;
    const number = ++this.#calls;
    const watch = audit.begin(this.#id, number, server, tool);
    const text = invalidRequest(server, tool, options) ?? textOf(args, server, tool, options.areArgumentsScanned);
    // The process does not end while somebody waits: the clock's timers, which a call may hang on, would not keep it.
    alive.hold();
    const promise = new Promise<ToolResult>(takeSettlers);
    const reject = rejectLast;
    try {
      const call = new CallUnderWay(this.#id, number, options, server, tool, text, clock.nowMs(), watch);
      if (text instanceof HostError) this.#over(call, text);
      else this.#enter(call);
    } catch (error) {
      // What an embedder handed in, or a mistake of ours in telling it: it comes out of the promise all the same.
      reject(error as Error);
    }
    return promise;
  }

  #enter(call: CallUnderWay): void {
    try {
      const { mustBeOpen, findServer } = this.#parts;
      mustBeOpen(call.server);
      if (call.relay?.instance === undefined && findServer(call.server)?.definition.isolation === 'per-client')
        return this.#over(call, this.#withoutInstance(call));
      this.#send(call);
      call.isFresh = false;
    } catch (error) {
      this.#over(call, error as Error);
    }
  }

  /** Never silently the process that describes the server to everybody. Who may not use the server hears nothing about it. */
  #withoutInstance({ principal, server, tool }: Call): HostError {
    const refused = denial(this.#parts.guards, { principal, server, tool, action: 'call' });
    return refused ?? instanceMissing(server, tool);
  }

  #over(call: CallUnderWay, outcome: Outcome): void {
    const { alive, audit } = this.#parts;
    alive.letGo();
    const own = audit.ended(call, outcome, call.trail);
    if (own instanceof Error) call.abandon(own);
    else call.resolve(own);
  }
}

type Resolve = (result: CallResult) => void;
type Reject = (error: Error) => void;

/** Of the promise that was made last, for the call that is made right after it: one function for all, instead of one for each. */
let resolveLast: Resolve;
let rejectLast: Reject;
const takeSettlers = (resolve: Resolve, reject: Reject): void => {
  resolveLast = resolve;
  rejectLast = reject;
};

/** Its number is written out only for whoever asks: an error, a record, a span. */
class CallUnderWay extends StageNotes implements Call {
  // Declared only: a member that is made before it is given its value is written twice.
  declare readonly hostId: string;
  declare readonly number: number;
  declare readonly principal: Principal;
  declare readonly server: string;
  declare readonly tool: string;
  declare readonly args: JsonText;
  declare readonly deadlineAtMs: number;
  declare readonly signal: CancelSignal | undefined;
  declare readonly idempotencyKey: string | undefined;
  declare readonly onProgress: ((params: Buffer) => void) | undefined;
  declare readonly attempt: number;
  declare readonly relay: CallRelay | undefined;
  declare readonly madeAtMs: number;
  declare isFresh: boolean;
  declare readonly trail: CallWatch | undefined;
  declare readonly resolve: Resolve;
  declare readonly abandon: Reject;

  constructor(
    hostId: string,
    number: number,
    options: HostCallOptions,
    server: string,
    tool: string,
    args: JsonText | HostError,
    madeAtMs: number,
    trail: CallWatch | undefined,
  ) {
    super();
    this.hostId = hostId;
    this.number = number;
    this.principal = options.principal ?? embedder;
    this.server = server;
    this.tool = tool;
    this.args = args instanceof HostError ? '{}' : args;
    this.madeAtMs = madeAtMs;
    this.deadlineAtMs = madeAtMs + (options.deadlineMs ?? callDeadlineMs);
    this.signal = options.signal;
    this.idempotencyKey = options.idempotencyKey;
    this.onProgress = options.onProgress;
    this.attempt = options.attempt ?? 0;
    this.relay = options === noCallOptions ? undefined : relayOf(options);
    this.isFresh = true;
    this.trail = trail;
    this.resolve = resolveLast;
    this.abandon = rejectLast;
  }

  /** One object for both. */
  get notes(): StageNotes {
    return this;
  }

  get requestId(): string {
    return `${this.hostId}-${this.number}`;
  }
}

/** What an instance of a client's own answers is for that client, as it is then. */
const mayCache = ({ cache, isolation }: ServerDefinition, relay: CallRelay | undefined): boolean =>
  cache === 'on' && (relay?.instance === undefined || isolation === 'shared');

/** Nearly every call of an embedder has none. */
function relayOf(options: HostCallOptions): CallRelay | undefined {
  const { meta, members, capabilities, onServerRequest, onServerNotification, instance } = options;
  const isRelayed = meta ?? members ?? capabilities ?? onServerRequest ?? onServerNotification ?? instance;
  if (isRelayed === undefined) return undefined;
  return { meta, members, capabilities, onServerRequest, onServerNotification, instance };
}

/** Checked here, before anything is charged or started; nobody looks into it again. Bytes must stay as they are until then. */
function textOf(args: ToolArguments, server: string, tool: string, areScanned = false): JsonText | HostError {
  try {
    if (typeof args === 'string' || args instanceof Uint8Array) {
      if (!areScanned) checkObject(args, 'arguments');
      return args;
    }
    // Undefined for what JSON has no word for, such as a function.
    const text = JSON.stringify(args) as string | undefined;
    return text?.startsWith('{') ? text : unwritable(server, tool);
  } catch (error) {
    return isHostError(error) ? error : unwritable(server, tool, error);
  }
}

const unsent = { phase: 'queued', execution: 'not_executed' } as const;

const unwritable = (server: string, tool: string, cause?: unknown): HostError =>
  new HostError('invalid_arguments', `server '${server}': the arguments cannot be written as JSON`, {
    ...unsent,
    server,
    tool,
    field: 'args',
    hint: 'give an object without cycles, functions and BigInts, or the text of a JSON object',
    ...(cause === undefined ? {} : { cause }),
  });

/** What an embedder without types can get wrong, before it gets any further. */
function invalidRequest(server: string, tool: string, options: HostCallOptions): HostError | undefined {
  const { deadlineMs, signal, instance } = options;
  if (typeof server !== 'string') return invalid(server, 'server', 'is not a string', 'give the name of a server');
  if (typeof tool !== 'string') return invalid(server, 'tool', 'is not a string', 'give the name of a tool');
  if (deadlineMs !== undefined && !(typeof deadlineMs === 'number' && !Number.isNaN(deadlineMs)))
    return invalid(server, 'deadlineMs', 'is not a number', 'give the milliseconds the call may take, or leave it out');
  if (signal !== undefined && !isCancelSignal(signal))
    return invalid(server, 'signal', 'is not an AbortSignal', 'give the signal of an AbortController');
  if (instance !== undefined && !isInstance(instance))
    return invalid(server, 'instance', `is not a text of 1 to ${instanceCharsMax} characters`, 'name the client');
  return undefined;
}

const instanceCharsMax = 512;
const isInstance = (value: unknown): boolean =>
  typeof value === 'string' && value.length > 0 && value.length <= instanceCharsMax;

const invalid = (server: string, field: string, what: string, hint: string): HostError =>
  new HostError('invalid_request', `server '${neutraliseLine(String(server), LIMITS.quotedChars)}': ${field} ${what}`, {
    ...unsent,
    field,
    hint,
  });
