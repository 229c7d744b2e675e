/**
 * Everything the host keeps for one server: its definition, its supervisor, breaker, slots, and what is known of its tools.
 */

import { hash } from 'node:crypto';
import type { CatalogServer } from '../catalog/catalog-server.js';
import { listsOriginOf, originOf } from '../catalog/server-origin.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isOneShot } from '../config/server-spec.js';
import type { Clock } from '../kernel/clock.js';
import { type Breaker, type CircuitChanged, defaultBreakerPlan } from '../policy/breaker.js';
import { CallSlots, defaultConcurrencyPlan } from '../policy/concurrency.js';
import type { ToolTraits } from '../policy/operation.js';
import { RetryBudget } from '../policy/retry-budget.js';
import type { AuthRecovery } from '../session/auth/auth-recovery.js';
import type { ListedItem } from '../session/lists.js';
import type { Session } from '../session/session.js';
import type { CallHold } from '../supervisor/registry.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import { memberBytes, memberText } from '../wire/json-members.js';
import { ServerCircuit } from './server-circuit.js';
import { notReloadable } from './spawn.js';
import { type CircuitNow, closedNow, WorstCircuit } from './worst-circuit.js';

export class ManagedServer implements CatalogServer {
  readonly definition: ServerDefinition;
  readonly supervisor: Supervisor<Session>;
  /** Of a server over HTTP. */
  readonly auth: AuthRecovery | undefined;
  /** Changes with everything that could make an old answer wrong. */
  readonly fingerprint: string;
  /** What it is: another definition of the same is taken to list the same until it was asked. */
  readonly origin: string;
  /** Under which its lists are kept. Those of a server whose pins are off were compared with nothing. */
  readonly listsOrigin: string;
  readonly #hold: CallHold;
  readonly #clock: Clock;
  readonly #onCircuit: CircuitChanged | undefined;
  // Made for the first call: most servers of a large host are at rest, and each empty table would cost as much as a full one.
  #circuit: ServerCircuit | undefined;
  #circuits: WorstCircuit | undefined;
  #slots: CallSlots | undefined;
  #retries: RetryBudget | undefined;
  /** Of the tools that were asked for; of the others the bytes, in which they are looked up. */
  #traits: Map<string, ToolTraits | Buffer> | undefined;
  /** Tools whose annotations are believed; undefined: none. */
  #trusted: ReadonlySet<string> | undefined;
  #tools: readonly ListedItem[] = [];

  constructor(
    definition: ServerDefinition,
    supervisor: Supervisor<Session>,
    hold: CallHold,
    clock: Clock,
    auth?: AuthRecovery,
    onCircuit?: CircuitChanged,
  ) {
    this.definition = definition;
    this.supervisor = supervisor;
    this.auth = auth;
    this.#hold = hold;
    this.fingerprint = fingerprintOf(definition);
    this.origin = originOf(definition.spec);
    this.listsOrigin = listsOriginOf(definition);
    this.#onCircuit = onCircuit;
    this.#clock = clock;
  }

  get circuit(): ServerCircuit {
    this.#circuit ??= this.circuitFor(this.supervisor);
    return this.#circuit;
  }

  get breaker(): Breaker {
    return this.circuit.breaker;
  }

  /** Makes the circuit of this server, or of an instance with a supervisor of its own. */
  circuitFor(supervisor: Supervisor<Session>): ServerCircuit {
    this.#circuits ??= new WorstCircuit(this.#onCircuit ?? (() => {}));
    const circuits = this.#circuits;
    const plan = { ...defaultBreakerPlan, ...this.definition.breaker };
    const circuit = new ServerCircuit(plan, supervisor, this.#clock, (_from, to, failures) =>
      circuits.changed(circuit.breaker, to, failures),
    );
    return circuit;
  }

  /** The worst state of its breakers, those of instances included. */
  circuitNow(nowMs: number): CircuitNow {
    return this.#circuits?.now(this.#circuit?.breaker, nowMs) ?? closedNow;
  }

  /** A new run, or none: what calls found out about the one before counts no more. */
  forgetCircuit(): void {
    this.#circuit?.breaker.reset();
  }

  get slots(): CallSlots {
    const runningMax = this.definition.concurrency;
    this.#slots ??= new CallSlots(this.#clock, { ...defaultConcurrencyPlan, runningMax });
    return this.#slots;
  }

  get retries(): RetryBudget {
    this.#retries ??= new RetryBudget();
    return this.#retries;
  }

  /** Calls that run and calls that wait. */
  get load(): { readonly running: number; readonly waiting: number } {
    return this.#slots ?? noLoad;
  }

  /** A call holds the server open from here … */
  enter(): void {
    this.#hold.enter();
  }

  /** … to here. */
  leave(): void {
    this.#hold.leave();
  }

  /** How long the start that is under way, or else the next one, may take. */
  get startMs(): number {
    const { firstStartMs, startMs } = this.definition.timeouts;
    return this.supervisor.isFirstStart ? firstStartMs : startMs;
  }

  /** A reload closes and opens again: throws where one object was attached, which can be opened once. */
  mustBeReloadable(): void {
    const { name, spec } = this.definition;
    if (isOneShot(spec)) throw notReloadable(name);
  }

  /** Ends it for good; resolves when nothing of it runs. `isReplaced`: another one takes its name. */
  dispose(isReplaced = false): Promise<void> {
    this.auth?.close();
    this.#circuit?.close();
    return this.supervisor.dispose(isReplaced);
  }

  /** The same for work that is not on the path of every call. */
  async whileHeld<T>(run: () => Promise<T>): Promise<T> {
    this.enter();
    try {
      return await run();
    } finally {
      this.leave();
    }
  }

  /** The last list that was read. */
  get tools(): readonly ListedItem[] {
    return this.#tools;
  }

  /** Annotations are believed only where the operator vouches for the server and the tool is the one that was approved. */
  learn(tools: readonly ListedItem[], isApproved: (tool: string) => boolean): void {
    this.#tools = tools;
    this.#traits = undefined;
    this.#trusted = this.definition.trustAnnotations
      ? new Set(tools.map(({ key }) => key).filter((key) => isApproved(key)))
      : undefined;
  }

  /** What was never listed is taken for a tool that changes something. */
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
    // Nobody changes a definition; one that could be is not trusted to stay.
    if (Object.isFrozen(definition)) fingerprints.set(definition, fingerprint);
  }
  return fingerprint;
}

const fingerprints = new WeakMap<ServerDefinition, string>();

const plainTool: ToolTraits = { isReadOnly: false, isIdempotent: false, isTrusted: false };
const noLoad = { running: 0, waiting: 0 };

/** Absent hints have the protocol's defaults: not read-only, destructive, not idempotent. Contradicting hints count as absent. */
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
