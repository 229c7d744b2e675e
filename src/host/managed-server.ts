/** State of one server in a host: definition, supervisor, breaker, call slots, tools. */

import { hash } from 'node:crypto';
import type { CatalogServer } from '../catalog/catalog-server.js';
import { listsOriginOf, originOf } from '../catalog/server-origin.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isOneShot } from '../config/server-spec.js';
import type { Clock } from '../kernel/clock.js';
import { type HostError, isHostError, withoutStack } from '../kernel/errors.js';
import { type Breaker, type CircuitChanged, defaultBreakerPlan } from '../policy/breaker.js';
import { CallSlots, defaultConcurrencyPlan } from '../policy/concurrency.js';
import type { ToolTraits } from '../policy/operation.js';
import { RetryBudget } from '../policy/retry.js';
import type { AuthRecovery } from '../session/auth/auth-recovery.js';
import type { ListedItem } from '../session/lists.js';
import type { Session } from '../session/session.js';
import type { CallHold } from '../supervisor/registry.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import { memberBytes, memberText } from '../wire/json-members.js';
import { type CircuitStatus, closedStatus, ServerCircuit, WorstCircuit } from './server-circuit.js';
import { notReloadable } from './spawn.js';

/**
 * The target of an operation: the shared server, or the instance of a client (instances.ts).
 * Guards, pins, budgets and slots belong to the server; each target has its own connection and breaker.
 */
export abstract class CallTarget {
  readonly supervisor: Supervisor<Session>;
  /** Undefined unless the transport is HTTP. */
  readonly auth: AuthRecovery | undefined;
  readonly #hold: CallHold;
  /** Created by the first call: most servers of a large host are idle. */
  #circuit: ServerCircuit | undefined;

  constructor(supervisor: Supervisor<Session>, auth: AuthRecovery | undefined, hold: CallHold) {
    this.supervisor = supervisor;
    this.auth = auth;
    this.#hold = hold;
  }

  protected abstract createCircuit(): ServerCircuit;

  get circuit(): ServerCircuit {
    this.#circuit ??= this.createCircuit();
    return this.#circuit;
  }

  /** Undefined before the first call. */
  protected get ownCircuit(): ServerCircuit | undefined {
    return this.#circuit;
  }

  /** Called when a run began or ended, or when the server has answered: earlier failures no longer count. */
  forgetCircuit(): void {
    this.#circuit?.breaker.reset();
  }

  enter(): void {
    this.#hold.enter();
  }

  leave(): void {
    this.#hold.leave();
  }
}

/**
 * Selects the instance of a client, or the shared server. `owner`: id of the principal. If the server is per-client, throws if
 * `instance` is undefined or cannot be created.
 */
export type TargetOf = (server: ManagedServer, instance: string | undefined, owner: string) => CallTarget;

export class ManagedServer extends CallTarget implements CatalogServer {
  readonly definition: ServerDefinition;
  /** Hash of the definition: part of each cache key. */
  readonly fingerprint: string;
  /** See server-origin.ts. */
  readonly origin: string;
  readonly listsOrigin: string;
  readonly #clock: Clock;
  readonly #onCircuit: CircuitChanged | undefined;
  /** The end of the server that had the name before; undefined if there was none. */
  readonly #predecessor: Promise<void> | undefined;
  // Created by the first call: most servers of a large host are idle, and empty tables cost memory too.
  #circuits: WorstCircuit | undefined;
  #slots: CallSlots | undefined;
  #retries: RetryBudget | undefined;
  /** Parsed traits of tools that were called; unparsed JSON of all other tools. */
  #traits: Map<string, ToolTraits | Buffer> | undefined;
  /** Tools whose annotations are trusted; undefined: none. */
  #trusted: ReadonlySet<string> | undefined;
  #tools: readonly ListedItem[] = [];
  #toolsError: HostError | undefined;

  constructor(
    definition: ServerDefinition,
    supervisor: Supervisor<Session>,
    hold: CallHold,
    clock: Clock,
    auth?: AuthRecovery,
    onCircuit?: CircuitChanged,
    predecessor?: Promise<void>,
  ) {
    super(supervisor, auth, hold);
    this.definition = definition;
    this.fingerprint = fingerprintOf(definition);
    this.origin = originOf(definition.spec);
    this.listsOrigin = listsOriginOf(definition);
    this.#onCircuit = onCircuit;
    this.#predecessor = predecessor;
    this.#clock = clock;
  }

  protected createCircuit(): ServerCircuit {
    return this.circuitFor(this.supervisor);
  }

  get breaker(): Breaker {
    return this.circuit.breaker;
  }

  /** Creates the circuit of this server, or of an instance with its own supervisor. */
  circuitFor(supervisor: Supervisor<Session>): ServerCircuit {
    this.#circuits ??= new WorstCircuit(this.#onCircuit ?? (() => {}));
    const circuits = this.#circuits;
    const plan = { ...defaultBreakerPlan, ...this.definition.breaker };
    const circuit = new ServerCircuit(plan, supervisor, this.#clock, (_from, to, failures) =>
      circuits.changed(circuit.breaker, to, failures),
    );
    return circuit;
  }

  /** Worst state of its breakers, including those of instances. */
  circuitStatus(nowMs: number): CircuitStatus {
    return this.#circuits?.now(this.ownCircuit?.breaker, nowMs) ?? closedStatus;
  }

  get slots(): CallSlots {
    const { concurrency: runningMax, queueLength: waitingMax } = this.definition;
    this.#slots ??= new CallSlots(this.#clock, { ...defaultConcurrencyPlan, runningMax, waitingMax });
    return this.#slots;
  }

  get retries(): RetryBudget {
    this.#retries ??= new RetryBudget();
    return this.#retries;
  }

  get load(): Pick<CallSlots, 'running' | 'waiting' | 'calls'> {
    return this.#slots ?? noLoad;
  }

  /** Time limit of the current or next start. */
  get startMs(): number {
    const { firstStartMs, startMs } = this.definition.timeouts;
    return this.supervisor.isFirstStart ? firstStartMs : startMs;
  }

  /** Throws for an attached object, which can be opened only once. */
  mustBeReloadable(): void {
    const { name, spec } = this.definition;
    if (isOneShot(spec)) throw notReloadable(name);
  }

  /** Resolves when the process or session has ended. */
  stop(): Promise<void> {
    return this.#withPredecessor(this.supervisor.stop());
  }

  /** Resolves when the process or session has ended. `isReplaced`: another server takes the name. */
  dispose(isReplaced = false): Promise<void> {
    this.auth?.close();
    this.ownCircuit?.close();
    return this.#withPredecessor(this.supervisor.dispose(isReplaced));
  }

  /** A server that waits for its predecessor ends at once. The name is free only when both have ended. */
  #withPredecessor(ended: Promise<void>): Promise<void> {
    return this.#predecessor === undefined ? ended : Promise.all([ended, this.#predecessor]).then(() => {});
  }

  /** Keeps the server running until `run` settles, for work outside of calls. */
  async keepRunningDuring<T>(run: () => Promise<T>): Promise<T> {
    this.enter();
    try {
      return await run();
    } finally {
      this.leave();
    }
  }

  get tools(): readonly ListedItem[] {
    return this.#tools;
  }

  /** Why the tools could not be read the last time; undefined: they could. */
  get toolsError(): HostError | undefined {
    return this.#toolsError;
  }

  toolsFailed(error: unknown): void {
    if (isHostError(error) && error.code === 'protocol_error') this.#toolsError = withoutStack(error);
  }

  /** Trusts annotations only if the operator allows it and the tool has its approved version. */
  learn(tools: readonly ListedItem[], isApproved: (tool: string) => boolean): void {
    this.#tools = tools;
    this.#toolsError = undefined;
    this.#traits = undefined;
    this.#trusted = this.definition.trustAnnotations
      ? new Set(tools.map(({ key }) => key).filter((key) => isApproved(key)))
      : undefined;
  }

  /** An unlisted tool counts as neither read-only nor idempotent. */
  traitsOf(tool: string): ToolTraits {
    this.#traits ??= new Map(this.#tools.map(({ key, raw }) => [key, raw]));
    const found = this.#traits.get(tool);
    if (!(found instanceof Uint8Array)) return found ?? plainTool;
    const traits = toolTraits(found, this.#trusted?.has(tool) === true);
    this.#traits.set(tool, traits);
    return traits;
  }
}

/** Equal for equal definitions only. */
export function fingerprintOf(definition: ServerDefinition): string {
  let fingerprint = fingerprints.get(definition);
  if (fingerprint === undefined) {
    fingerprint = hash('sha256', JSON.stringify(definition), 'base64url');
    // A definition that is not frozen could change, so its hash is not cached.
    if (Object.isFrozen(definition)) fingerprints.set(definition, fingerprint);
  }
  return fingerprint;
}

const fingerprints = new WeakMap<ServerDefinition, string>();

const plainTool: ToolTraits = { isReadOnly: false, isIdempotent: false, isTrusted: false };
const noLoad = { running: 0, waiting: 0, calls: 0 };

/** Default of absent hints: not read-only, destructive, not idempotent. Contradictory hints count as absent. */
function toolTraits(tool: Buffer, isTrusted: boolean): ToolTraits {
  const annotations = memberBytes(tool, 'annotations');
  const says = (hint: string) => (annotations ? memberText(annotations, hint) : undefined);
  const isReadOnly = says('readOnlyHint') === 'true';
  const contradicts = isReadOnly && says('destructiveHint') === 'true';
  return {
    isReadOnly: isReadOnly && !contradicts,
    isIdempotent: says('idempotentHint') === 'true' && !contradicts,
    isTrusted,
  };
}
