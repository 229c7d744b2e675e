/**
 * Everything the host keeps for one server: its definition, its supervisor, breaker, slots, and what is known of its tools.
 */
import { createHash } from 'node:crypto';
import type { ServerDefinition } from '../config/server-definition.js';
import type { Clock } from '../kernel/clock.js';
import { Breaker, type CircuitChanged, defaultBreakerPlan } from '../policy/breaker.js';
import type { ToolTraits } from '../policy/call.js';
import { CallSlots, defaultConcurrencyPlan } from '../policy/concurrency.js';
import { RetryBudget } from '../policy/retry-budget.js';
import type { CallHold } from '../registry/registry.js';
import type { AuthLimits, AuthRecovery } from '../session/auth-recovery.js';
import type { ListedItem } from '../session/lists.js';
import type { Session } from '../session/session.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import { toolTraits } from './tool-traits.js';

export class ManagedServer {
  readonly definition: ServerDefinition;
  readonly supervisor: Supervisor<Session>;
  /** Of a server over HTTP. */
  readonly auth: AuthRecovery | undefined;
  readonly breaker: Breaker;
  /** Changes with everything that could make an old answer wrong. */
  readonly fingerprint: string;
  readonly #hold: CallHold;
  readonly #clock: Clock;
  // Made for the first call: most servers of a large host are at rest, and each empty table would cost as much as a full one.
  #slots: CallSlots | undefined;
  #retries: RetryBudget | undefined;
  #traits = noTraits;
  #tools: readonly ListedItem[] = [];

  constructor(
    definition: ServerDefinition,
    supervisor: Supervisor<Session>,
    hold: CallHold,
    clock: Clock,
    auth?: AuthRecovery,
    onCircuit?: CircuitChanged,
  ) {
    const { breaker } = definition;
    this.definition = definition;
    this.supervisor = supervisor;
    this.auth = auth;
    this.#hold = hold;
    this.fingerprint = fingerprintOf(definition);
    const plan = { ...defaultBreakerPlan, threshold: breaker.threshold, resetMs: breaker.resetMs };
    this.breaker = new Breaker(plan, onCircuit);
    this.#clock = clock;
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

  /** Does it, and once more if it was refused for a token that could be renewed. */
  renewing<T>(limits: AuthLimits, attempt: () => Promise<T>): Promise<T> {
    return this.auth ? this.auth.withRenewal(limits, attempt) : attempt();
  }

  /** How long the start that is under way, or else the next one, may take. */
  get startMs(): number {
    const { firstStartMs, startMs } = this.definition.timeouts;
    return this.supervisor.isFirstStart ? firstStartMs : startMs;
  }

  /** Ends it for good; resolves when nothing of it runs. `isReplaced`: another one takes its name. */
  dispose(isReplaced = false): Promise<void> {
    this.auth?.close();
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
    const { trustAnnotations } = this.definition;
    this.#tools = tools;
    if (tools.length === 0) this.#traits = noTraits;
    else
      this.#traits = new Map(tools.map(({ key, raw }) => [key, toolTraits(raw, trustAnnotations && isApproved(key))]));
  }

  /** What was never listed is taken for a tool that changes something. */
  traitsOf(tool: string): ToolTraits {
    return this.#traits.get(tool) ?? plainTool;
  }
}

/** Equal for equal definitions only. */
export const fingerprintOf = (definition: ServerDefinition): string =>
  createHash('sha256').update(JSON.stringify(definition)).digest('base64url');

const plainTool: ToolTraits = { isReadOnly: false, isIdempotent: false, isTrusted: false };
const noTraits: ReadonlyMap<string, ToolTraits> = new Map();
const noLoad = { running: 0, waiting: 0 };
