/**
 * Creates an operation for every call, list, read and request, and runs it through the stages of policy.
 * Not here: the decisions of the stages (policy/), sending (dispatch.ts), events and traces (audit.ts).
 * Invariant: every operation has one promise, which settles exactly once.
 */

import type { ServerDefinition } from '../config/server-definition.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { KeepAlive } from '../kernel/clock.js';
import type { Complete } from '../kernel/complete.js';
import { HostError } from '../kernel/errors.js';
import { newId } from '../kernel/random.js';
import { allow, denial, type Guard } from '../policy/allowlist.js';
import { breakerStage } from '../policy/breaker-stage.js';
import type { CachedCall, ResponseCache } from '../policy/cache.js';
import { cachedCalls, cachedLists } from '../policy/cache-stage.js';
import { concurrency, refuseFull } from '../policy/concurrency.js';
import {
  type CallRelay,
  type CallResult,
  type EraAnswer,
  embedder,
  everyKind,
  forCalls,
  type Item,
  isCall,
  type ListResult,
  type Operation,
  type OperationKind,
  type Outcome,
  type Principal,
  pipelines,
  type Result,
  StageState,
  waitMs,
} from '../policy/operation.js';
import { checkPins, type PinFacts, pinRefusalError } from '../policy/pin-stage.js';
import type { Pins } from '../policy/pins.js';
import { budget, type CallBudgets } from '../policy/rate-limit.js';
import { SingleFlight } from '../policy/single-flight.js';
import {
  noteThrottling,
  refuseThrottled,
  type ServerThrottle,
  type ToolThrottle,
  throttle,
} from '../policy/throttles.js';
import type { ToolArguments } from '../session/session.js';
import type { JsonText } from '../wire/channel.js';
import { checkParams } from '../wire/json-edit.js';
import type { Audit, CallWatch } from './audit.js';
import { type DispatchParts, dispatch, targetFor } from './dispatch.js';
import { type HostCallOptions, type HostRequestOptions, noCallOptions, type ToolResult } from './host-interface.js';
import { instanceMissing } from './instances.js';
import type { ManagedServer } from './managed-server.js';
import { argumentsText, checkMethod, invalidCall } from './operation-checks.js';

type DispatchPart = 'clock' | 'serverOf' | 'targetOf' | 'reconnects' | 'clean' | 'exchange';

export interface OperationsParts extends Pick<DispatchParts, DispatchPart> {
  readonly guards: () => readonly Guard[];
  readonly pins: Pins;
  readonly budgets: CallBudgets;
  readonly cache: ResponseCache<CachedCall>;
  readonly lists: ResponseCache<readonly Item[]>;
  readonly throttle: ToolThrottle;
  readonly serverThrottle: ServerThrottle;
  readonly findServer: (name: string) => ManagedServer | undefined;
  /** Throws if the host is closed. */
  readonly mustBeOpen: (server: string) => void;
  readonly audit: Audit;
  readonly alive: KeepAlive;
}

/** Deadline of a call whose caller gives none. `timeouts.call` also limits how long the server may be silent. */
const callDeadlineMs = 10 * 60_000;

/** A list, or the read of a resource. */
export interface ListRequest extends Pick<Operation, 'server' | 'method' | 'uri' | 'principal' | 'signal'> {
  readonly kind: 'list' | 'read';
  readonly deadlineMs: number;
}

export class Operations {
  readonly #parts: OperationsParts;
  readonly #send: ReturnType<typeof pipelines>;
  /** Unguessable prefix of operation ids, which end with a number. */
  readonly #id = newId();
  #count = 0;

  constructor(parts: OperationsParts) {
    const { clock, guards, pins, serverOf, findServer, targetOf, serverThrottle, audit } = parts;
    this.#parts = parts;
    const facts: PinFacts = {
      statusOf: (server, tool) => pins.statusOf(server, tool),
      policyOf: (server) => serverOf(server).definition.pins,
      hashesOf: (server, tool) => pins.hashesOf(server, tool),
    };
    const flights = new SingleFlight(clock);
    const noticeAccount = ({ server }: Operation) => serverOf(server).auth?.current();
    /** True if the cache or an equal call in flight may answer. */
    const mayBeAnswered = ({ server, tool, relay }: Operation) => {
      const managed = findServer(server);
      if (!managed || tool === undefined || !mayCache(managed.definition, relay)) return false;
      const { isReadOnly, isTrusted } = managed.traitsOf(tool);
      return (isReadOnly && isTrusted) || parts.cache.entriesOf(server, tool) > 0;
    };
    // The order is part of the contract: an operation that is refused early changes nothing in later stages.
    this.#send = pipelines(
      [
        [everyKind, allow(guards, audit.denied)],
        forCalls(checkPins(facts)),
        [['call', 'request'], refuseFull((server) => findServer(server)?.slots, mayBeAnswered)],
        [['call', 'read', 'request'], budget(parts.budgets)],
        forCalls(
          cachedCalls({
            cache: parts.cache,
            flights,
            mayCache: ({ server, relay }) => mayCache(serverOf(server).definition, relay),
            // Read again when the answer arrives: the answer of a removed server is not cached.
            fingerprintOf: ({ server }) => findServer(server)?.fingerprint,
            traitsOf: ({ server, tool }) => serverOf(server).traitsOf(tool),
            noticeAccount,
          }),
        ),
        [
          ['list', 'read'],
          cachedLists({
            cache: parts.lists,
            flights,
            mayCache: ({ server }) => findServer(server)?.definition.cache === 'on',
            noticeAccount,
          }),
        ],
        forCalls(throttle(parts.throttle)),
        [everyKind, refuseThrottled(serverThrottle)],
        [
          everyKind,
          breakerStage((operation) => targetFor(serverOf(operation.server), operation, targetOf).circuit, clock),
        ],
        [everyKind, concurrency((server) => serverOf(server).slots)],
        [everyKind, noteThrottling(serverThrottle)],
      ],
      dispatch({
        serverOf,
        targetOf,
        clock,
        reconnects: parts.reconnects,
        clean: parts.clean,
        pinRefusal: (server, tool) => pinRefusalError(facts, server, tool),
        serverThrottle,
        exchange: (server, operation, session, options) =>
          operation.kind === 'request'
            ? session
                .request(operation.method, operation.args, options)
                .then((answer) => ({ ...answer, era: session.facts.era }))
            : parts.exchange(server, operation, session, options),
        onReplay: audit.replayed,
      }),
      // Only this class creates operations, so the cast is safe.
      (operation, outcome) => this.#over(operation as RunningOperation, outcome),
    );
  }

  call(server: string, tool: string, args: ToolArguments, options: HostCallOptions): Promise<ToolResult> {
    const { clock, audit } = this.#parts;
    const number = ++this.#count;
    const watch = audit.begin(this.#id, number, server, tool);
    const text = options.isChecked
      ? (args as JsonText)
      : (invalidCall(server, tool, options) ?? argumentsText(args, server, tool));
    return new Promise((resolve, reject) => {
      const isRefused = text instanceof HostError;
      const call = new RunningOperation(
        this.#id,
        number,
        'call',
        server,
        tool,
        'tools/call',
        '',
        isRefused ? '{}' : text,
        options,
        clock.nowMs(),
        options.deadlineMs ?? callDeadlineMs,
        options === noCallOptions ? undefined : relayOf(options),
        watch,
        resolve as (result: Result) => void,
        reject,
      );
      this.#begin(call, isRefused ? text : undefined);
    });
  }

  /** Sends `prompts/get`, `completion/complete` and every other method without its own operation. */
  async request(
    server: string,
    method: string,
    params: JsonText | undefined,
    options: HostRequestOptions = {},
  ): Promise<EraAnswer> {
    const deadlineMs = waitMs(options.deadlineMs, callDeadlineMs);
    checkMethod(server, method);
    if (params !== undefined) checkParams(params);
    return (await this.#run('request', server, method, '', params, options, deadlineMs, options)) as EraAnswer;
  }

  async list({ kind, server, method, uri, principal, deadlineMs, signal }: ListRequest): Promise<readonly Item[]> {
    const options = { principal, signal };
    return ((await this.#run(kind, server, method, uri, undefined, options, deadlineMs, undefined)) as ListResult)
      .items;
  }

  #run(
    kind: OperationKind,
    server: string,
    method: string,
    uri: string,
    params: JsonText | undefined,
    options: HostRequestOptions,
    deadlineMs: number,
    relay: CallRelay | undefined,
  ): Promise<Result> {
    const number = ++this.#count;
    const nowMs = this.#parts.clock.nowMs();
    return new Promise((resolve, reject) => {
      this.#begin(
        new RunningOperation(
          ...([this.#id, number, kind, server, undefined, method, uri, params, options] as const),
          ...([nowMs, deadlineMs, relay, undefined, resolve, reject] as const),
        ),
        undefined,
      );
    });
  }

  /** Keeps the process alive while a caller waits: the timers of the clock are unreferenced. */
  #begin(operation: RunningOperation, refusal: HostError | undefined): void {
    this.#parts.alive.hold();
    if (refusal) return this.#over(operation, refusal);
    try {
      const { kind, server, relay } = operation;
      this.#parts.mustBeOpen(server);
      const isUnnamed = kind === 'call' && relay?.instance === undefined;
      if (isUnnamed && this.#parts.findServer(server)?.definition.isolation === 'per-client')
        return this.#over(operation, this.#withoutInstance(operation));
      this.#send[kind](operation);
      operation.isFresh = false;
    } catch (error) {
      this.#over(operation, error as Error);
    }
  }

  /**
   * The shared process of a per-client server only lists its tools, so a call without an instance is refused. A denied caller
   * learns only that it is denied.
   */
  #withoutInstance({ principal, server, tool }: Operation): HostError {
    const refused = denial(this.#parts.guards, { principal, server, tool, action: 'call' });
    return refused ?? instanceMissing(server, tool ?? '');
  }

  #over(operation: RunningOperation, outcome: Outcome): void {
    const { alive, audit } = this.#parts;
    alive.letGo();
    const own = isCall(operation) ? audit.ended(operation, outcome as CallResult | Error, operation.trail) : outcome;
    if (own instanceof Error) operation.abandon(own);
    else operation.resolve(own);
  }
}

/** One object for the operation and the state of its stages. Its id is formatted only for an error, a record or a span. */
class RunningOperation extends StageState implements Operation {
  readonly principal: Principal;
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
  readonly idempotencyKey: string | undefined;
  readonly onProgress: ((params: Buffer) => void) | undefined;
  readonly attempt: number;
  isFresh = true;

  constructor(
    readonly hostId: string,
    readonly number: number,
    readonly kind: OperationKind,
    readonly server: string,
    readonly tool: string | undefined,
    readonly method: string,
    readonly uri: string,
    readonly args: JsonText | undefined,
    options: HostCallOptions,
    readonly madeAtMs: number,
    deadlineMs: number,
    readonly relay: CallRelay | undefined,
    readonly trail: CallWatch | undefined,
    readonly resolve: (result: Result) => void,
    readonly abandon: (error: Error) => void,
  ) {
    super();
    this.principal = options.principal ?? embedder;
    this.deadlineAtMs = madeAtMs + deadlineMs;
    this.signal = options.signal;
    this.idempotencyKey = options.idempotencyKey;
    this.onProgress = options.onProgress;
    this.attempt = options.attempt ?? 0;
  }

  get stage(): StageState {
    return this;
  }

  get requestId(): string {
    return `${this.hostId}-${this.number}`;
  }
}

/** Answers of a client instance are not cached: they belong to that client and its state. */
const mayCache = ({ cache, isolation }: ServerDefinition, relay: CallRelay | undefined): boolean =>
  cache === 'on' && (relay?.instance === undefined || isolation === 'shared');

const relayMembers: Readonly<Record<keyof CallRelay, true>> = {
  meta: true,
  members: true,
  capabilities: true,
  onServerRequest: true,
  onServerNotification: true,
  instance: true,
};
const relayKeys = Object.keys(relayMembers) as (keyof CallRelay)[];

/** Undefined for nearly every call of an embedder. */
function relayOf(options: HostCallOptions): CallRelay | undefined {
  if (relayKeys.every((key) => options[key] === undefined)) return undefined;
  const { meta, members, capabilities, onServerRequest, onServerNotification, instance } = options;
  const relay: Complete<CallRelay> = {
    meta,
    members,
    capabilities,
    onServerRequest,
    onServerNotification,
    instance,
  };
  return relay;
}
