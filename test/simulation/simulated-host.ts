/**
 * A Host with the real parts and wiring (host-parts.ts) over simulated sessions, with one clock and one source of randomness. Only
 * the code that opens connections is replaced.
 */
import { parseHostConfig } from '../../src/config/host-config.js';
import { parseServerDefinition } from '../../src/config/server-definition.js';
import type { ServerSpec } from '../../src/config/server-spec.js';
import type { HostCallOptions, ToolResult } from '../../src/host/host-interface.js';
import { createHostParts, type HostParts } from '../../src/host/host-parts.js';
import type { ManagedServer } from '../../src/host/managed-server.js';
import { Cancellation } from '../../src/kernel/cancel-signal.js';
import { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import type { Random } from '../../src/kernel/random.js';
import type { Ticket } from '../../src/policy/breaker.js';
import { type ConnectOptions, Connector, type ConnectorOptions } from '../../src/session/connector.js';
import type { Session, ToolArguments } from '../../src/session/session.js';
import { SimulatedServer } from './simulated-server.js';
import { Timers } from './timers.js';

export interface Member {
  readonly managed: ManagedServer;
  readonly simulated: SimulatedServer;
}

/** The budget of the principal that floods. */
const budgets = { principals: { eve: { calls: 10, window: '10s' } } };

class SimulatedConnector extends Connector {
  readonly #serverOf: (name: string) => SimulatedServer;

  constructor(options: ConnectorOptions, serverOf: (name: string) => SimulatedServer) {
    super(options);
    this.#serverOf = serverOf;
  }

  override connect({ name }: ServerSpec, { signal, handlers }: ConnectOptions = {}): Promise<Session> {
    return this.#serverOf(name).connect(signal ?? new Cancellation(), (error) => handlers?.closed?.(error));
  }
}

export class SimulatedHost {
  readonly clock = new FakeClock();
  readonly timers = new Timers(this.clock);
  readonly members = new Map<string, Member>();
  readonly trace: string[] = [];
  /** Descriptions of violations. */
  readonly wrong: string[] = [];
  readonly #random: Random;
  readonly #parts: HostParts;
  readonly #simulated = new Map<string, SimulatedServer>();

  constructor(random: Random) {
    this.#random = random;
    this.#parts = createHostParts(
      { clock: this.clock, random, onProblem: (error) => this.note(`problem: ${String(error)}`) },
      (options) => new SimulatedConnector(options, (name) => this.#simulated.get(name) ?? notFound(name)),
    );
    this.#parts.rules.configure(
      parseHostConfig({ budgets, unlistedRole: 'allow' }, (error) => this.wrong.push(String(error))),
    );
    this.#parts.events.on('state', ({ server, from, to }) => this.note(`${server} ${from} → ${to}`));
  }

  note(line: string): void {
    this.trace.push(`${this.clock.nowMs()} ${line}`);
  }

  call(server: string, tool: string, args: ToolArguments, options: HostCallOptions): Promise<ToolResult> {
    return this.#parts.operations.call(server, tool, args, options);
  }

  member(name: string): Member {
    return this.members.get(name) ?? notFound(name);
  }

  add(name: string, entry: Readonly<Record<string, unknown>>, isRemote: boolean): void {
    const { clock, timers } = this;
    const definition = parseServerDefinition(name, entry, true);
    const simulated = new SimulatedServer({
      name,
      clock,
      timers,
      random: this.#random,
      isRemote,
      startTimeoutMs: definition.timeouts.startMs,
      trace: (line) => this.note(line),
    });
    this.#simulated.set(name, simulated);
    this.#parts.servers.declare(definition, (error) => this.wrong.push(String(error)));
    const managed = this.#parts.servers.get(name);
    this.members.set(name, { managed, simulated });
    this.#watchTrials(name, managed);
  }

  async stop(name: string): Promise<void> {
    void this.#parts.forget(name);
    await this.member(name).managed.supervisor.stop();
  }

  async reload(name: string): Promise<void> {
    this.member(name).managed.forgetCircuit();
    void this.#parts.forget(name);
    await this.member(name).managed.supervisor.reload();
  }

  async start(name: string): Promise<void> {
    this.member(name).managed.supervisor.start();
    await this.#parts.servers.ready(name).catch(() => {});
  }

  /** Number of calls that keep this server running. */
  held(name: string): number {
    return this.#parts.servers.registry.held(name).call;
  }

  async close(): Promise<void> {
    await this.#parts.servers.close();
    this.#parts.servers.registry.clear();
    this.#parts.alive.close();
  }

  /**
   * Counts the trials of a breaker from outside: one for 5 s, then three, then seven. Trials that follow each other within 10 s are
   * one series. All end when it opens or closes.
   */
  #watchTrials(name: string, { breaker }: ManagedServer): void {
    const trials = new Set<Ticket>();
    let sinceMs = 0;
    let triedAtMs = Number.NEGATIVE_INFINITY;
    let { period } = breaker;
    const { admit, released } = breaker;
    breaker.admit = (nowMs) => {
      const admission = admit.call(breaker, nowMs);
      if (!admission.admitted || !admission.ticket.isTrial) return admission;
      const isNewPeriod = period !== breaker.period;
      if (isNewPeriod) trials.clear();
      if (isNewPeriod || (trials.size === 0 && nowMs - triedAtMs > 10_000)) sinceMs = nowMs;
      triedAtMs = nowMs;
      period = breaker.period;
      trials.add(admission.ticket);
      const trialsMax = 2 ** (Math.floor((nowMs - sinceMs) / 5_000) + 1) - 1;
      if (trials.size > trialsMax) this.wrong.push(`${name}: ${trials.size} trials at a time`);
      return admission;
    };
    breaker.released = (ticket) => {
      trials.delete(ticket);
      released.call(breaker, ticket);
    };
  }
}

function notFound(name: string): never {
  throw new HostError('server_not_found', `no server named '${name}'`);
}
