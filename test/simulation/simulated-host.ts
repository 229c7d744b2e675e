/**
 * The parts of a Host, joined as host.ts joins them, over simulated servers: one clock, one source of chance.
 */
import { parseServerDefinition } from '../../src/config/server-definition.js';
import { dispatch } from '../../src/host/dispatch.js';
import { ManagedServer } from '../../src/host/managed-server.js';
import { Emitter } from '../../src/kernel/emitter.js';
import { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import type { Random } from '../../src/kernel/random.js';
import { allow } from '../../src/policy/allowlist.js';
import type { Ticket } from '../../src/policy/breaker.js';
import { ResponseCache } from '../../src/policy/cache.js';
import { cached } from '../../src/policy/cache-stage.js';
import { pipeline } from '../../src/policy/call.js';
import { budget, CallBudgets, type CallCeilings } from '../../src/policy/call-budget.js';
import { concurrency } from '../../src/policy/concurrency.js';
import { gate } from '../../src/policy/gate.js';
import { SingleFlight } from '../../src/policy/single-flight.js';
import { ToolThrottle, throttle } from '../../src/policy/tool-throttle.js';
import { Registry } from '../../src/registry/registry.js';
import type { Session } from '../../src/session/session.js';
import { CorrelatedFailures } from '../../src/supervisor/correlated-failures.js';
import { defaultPlan } from '../../src/supervisor/restart-plan.js';
import { StartGate } from '../../src/supervisor/start-gate.js';
import { Supervisor } from '../../src/supervisor/supervisor.js';
import type { SupervisorEvents } from '../../src/supervisor/supervisor-events.js';
import { type Ask, asked } from '../fakes/policy-call.js';
import { SimulatedServer } from './simulated-server.js';
import { Timers } from './timers.js';

export interface Member {
  readonly managed: ManagedServer;
  readonly simulated: SimulatedServer;
}

/** A tool that may run twice, and one that may not. */
const tools = ['{"name":"read","annotations":{"readOnlyHint":true}}', '{"name":"write"}'].map((raw) => ({
  key: (JSON.parse(raw) as { name: string }).name,
  raw: Buffer.from(raw),
}));

/** Whoever floods is held to so many calls in a window. */
const ceilings: CallCeilings = {
  principals: new Map([['eve', { calls: 10, windowMs: 10_000 }]]),
  roles: new Map(),
};

export class SimulatedHost {
  readonly clock = new FakeClock();
  readonly timers = new Timers(this.clock);
  readonly members = new Map<string, Member>();
  readonly trace: string[] = [];
  /** Sentences about what must never be. */
  readonly wrong: string[] = [];
  readonly send: Ask;
  readonly #random: Random;
  readonly #registry: Registry<unknown>;
  readonly #events = new Emitter<SupervisorEvents>();
  readonly #cache = new ResponseCache(this.clock);
  readonly #startGate = new StartGate(this.clock, { concurrent: 4 });
  readonly #correlated = new CorrelatedFailures(this.clock);

  constructor(random: Random) {
    const { clock } = this;
    this.#random = random;
    this.#registry = new Registry({ clock, onIdle: (name) => this.member(name).managed.supervisor.idle() });
    this.#events.on('supervisor', (event) => {
      if (event.kind !== 'state') return;
      this.note(`${event.server} ${event.from} → ${event.to}`);
      const isUp = (state: string) => state === 'ready' || state === 'suspect';
      if (event.to === 'ready' && event.from === 'connecting') {
        this.member(event.server).managed.forgetCircuit();
        this.#registry.opened(event.server);
      } else if (isUp(event.from) && !isUp(event.to)) {
        this.member(event.server).managed.forgetCircuit();
        this.#registry.closed(event.server);
      }
    });
    const way = pipeline(
      allow(() => []),
      budget(new CallBudgets(clock, () => ceilings)),
      cached({
        cache: this.#cache,
        flights: new SingleFlight(clock),
        mayCache: ({ server }) => this.member(server).managed.definition.cache === 'on',
        fingerprintOf: ({ server }) => this.member(server).managed.fingerprint,
        traitsOf: ({ server, tool }) => this.member(server).managed.traitsOf(tool),
      }),
      throttle(new ToolThrottle(clock)),
      gate((server) => this.member(server).managed.breaker, clock),
      concurrency((server) => this.member(server).managed.slots),
    );
    this.send = asked((end) =>
      way(
        dispatch({
          serverOf: (server) => this.member(server).managed,
          targetOf: (managed) => managed,
          clock,
          clean: (text) => text,
          pinRefusal: () => undefined,
          onReplay: () => {},
        }),
        end,
      ),
    );
  }

  note(line: string): void {
    this.trace.push(`${this.clock.nowMs()} ${line}`);
  }

  member(name: string): Member {
    const member = this.members.get(name);
    if (!member) throw new HostError('server_not_found', `no server named '${name}'`);
    return member;
  }

  add(name: string, entry: Readonly<Record<string, unknown>>, isRemote: boolean): void {
    const { clock, timers } = this;
    const definition = parseServerDefinition(name, entry, true);
    const { isLazy, isEnabled, keepAliveMs, restart, timeouts } = definition;
    const simulated = new SimulatedServer({
      name,
      clock,
      timers,
      random: this.#random,
      isRemote,
      startTimeoutMs: timeouts.startMs,
      trace: (line) => this.note(line),
    });
    this.#registry.register({ name, spec: name, isLazy, keepAliveMs, card: undefined });
    const supervisor = new Supervisor<Session>({
      name,
      clock,
      random: this.#random,
      gate: this.#startGate,
      guard: this.#correlated,
      events: this.#events,
      isLazy,
      isEnabled,
      plan: { ...defaultPlan, maxRestarts: restart.max, windowMs: restart.windowMs, onExhausted: restart.onExhausted },
      connect: simulated.connect,
      verify: async (session, deadlineAtMs) => (await session.probe(deadlineAtMs)) === 'alive',
    });
    const managed = new ManagedServer(definition, supervisor, this.#registry.callHold(name), clock);
    managed.learn(tools, () => true);
    this.members.set(name, { managed, simulated });
    this.#watchProbes(name, managed);
    if (!isLazy && isEnabled) supervisor.start();
  }

  async stop(name: string): Promise<void> {
    this.#cache.drop(name);
    await this.member(name).managed.supervisor.stop();
  }

  async reload(name: string): Promise<void> {
    this.member(name).managed.breaker.reset();
    this.#cache.drop(name);
    await this.member(name).managed.supervisor.reload();
  }

  async start(name: string): Promise<void> {
    const { supervisor, definition } = this.member(name).managed;
    supervisor.start();
    await supervisor.acquire(this.clock.nowMs() + definition.timeouts.startMs).catch(() => {});
  }

  /** Calls that hold this server open. */
  held(name: string): number {
    return this.#registry.held(name).call;
  }

  async close(): Promise<void> {
    await Promise.all([...this.members.values()].map(({ managed }) => managed.supervisor.dispose()));
    this.#registry.clear();
  }

  /** Counts the probes of a breaker from outside. A reset forgets the one under way. */
  #watchProbes(name: string, { breaker }: ManagedServer): void {
    let probe: Ticket | undefined;
    const { admit, reset } = breaker;
    breaker.admit = (nowMs, deadlineAtMs) => {
      const admission = admit.call(breaker, nowMs, deadlineAtMs);
      if (!admission.admitted || !admission.ticket.isProbe) return admission;
      if (probe && nowMs < (probe.probeUntilMs ?? 0)) this.wrong.push(`${name}: two probes at a time`);
      probe = admission.ticket;
      return admission;
    };
    for (const outcome of ['succeeded', 'failed', 'released'] as const) {
      const told = breaker[outcome];
      breaker[outcome] = (ticket, nowMs) => {
        if (ticket === probe) probe = undefined;
        told.call(breaker, ticket, nowMs);
      };
    }
    breaker.reset = () => {
      probe = undefined;
      reset.call(breaker);
    };
  }
}
