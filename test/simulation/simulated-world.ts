/**
 * A complete Host on a FakeClock: real supervisors, sessions, peers and HTTP channels over simulated pipes and sockets, with
 * servers of all kinds. Records calls, outcomes and violations.
 */
import { Host } from '../../src/host/host.js';
import type { HostEventOf } from '../../src/host/host-events.js';
import type { StatusRow } from '../../src/host/status.js';
import { type HostError, isHostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { Chance } from './chance.js';
import { SimulatedHttpServer } from './simulated-http-server.js';
import { SimulatedNetwork } from './simulated-network.js';
import { SimulatedOperator } from './simulated-operator.js';
import { SimulatedStdioServer } from './simulated-stdio-server.js';
import { Timers } from './timers.js';
import { type EndedConnection, WatchedConnector } from './watched-connector.js';

/** Deadlines within this time share one timer. */
export const slackMs = 20;

export interface Asked {
  readonly nonce: string;
  readonly server: string;
  readonly tool: 'read' | 'write';
  readonly madeAtMs: number;
  readonly deadlineAtMs: number;
  readonly outcomes: string[];
  error: HostError | undefined;
  settledAtMs: number;
  /** The server was stopped or removed from before the call until its end. */
  isForbidden: boolean;
}

export interface Member {
  readonly name: string;
  readonly upstream: SimulatedHttpServer | SimulatedStdioServer;
  /** Entry of the server in the configuration. */
  readonly entry: Readonly<Record<string, unknown>>;
  readonly isOneAtATime: boolean;
  readonly isPerClient: boolean;
  readonly callMs: number;
  readonly concurrency: number;
  /** True if a call has timed out since its breaker was last closed and a call was answered. */
  hasTimedOut: boolean;
  isCircuitClosed: boolean;
  /** True if it was parked before this start and was not ready since. */
  wasParked: boolean;
  /** True if it is parked and a call has tried it since. */
  isWakeSpent: boolean;
}

export class SimulatedWorld {
  readonly clock = new FakeClock();
  readonly timers = new Timers(this.clock);
  readonly chance: Chance;
  readonly members: readonly Member[];
  /** All calls in order. The nonce of a call is its index. */
  readonly asked: Asked[] = [];
  readonly trace: string[] = [];
  /** Descriptions of violations. */
  readonly wrong: string[] = [];
  readonly #worldChance: Chance;
  readonly #network: SimulatedNetwork;
  readonly #host: Host;
  /** Servers that an operator stopped, reloaded or changed: the time of the last such request. */
  readonly #operatedAtMs = new Map<string, number>();
  #isClosing = false;
  /** Undefined: the configuration does not change, and no server is per-client. */
  readonly operator: SimulatedOperator | undefined;

  constructor(seed: number, hasOperator = false) {
    this.chance = new Chance(seededRandom(seed));
    this.#worldChance = new Chance(seededRandom(seed ^ 0x3013d));
    this.#network = new SimulatedNetwork({
      timers: this.timers,
      random: this.#worldChance.random,
      portOf: (origin) => this.#httpServer(new URL(origin).hostname.split('.')[0] ?? '').port,
    });
    this.members = Array.from({ length: this.chance.int(1, 3) }, (_, n) => this.#makeMember(`s${n + 1}`, hasOperator));
    const transports = {
      pool: this.#network.pool,
      stdio: ({ name }: { readonly name: string }) => this.#stdioServer(name).open(),
    };
    const onProblem = (error: unknown) => this.note(`problem: ${String(error)}`);
    this.#host = new Host(
      { clock: this.clock, random: seededRandom(seed ^ 0x5eed), onProblem },
      (options) => new WatchedConnector({ ...options, transports }, (ended) => this.#checkNotAtWork(ended)),
    );
    this.operator = hasOperator ? new SimulatedOperator(this.#host, this) : undefined;
    // Only this event is subscribed to: records of calls would cost more than the calls.
    this.#host.on('state', (event) => this.#heard(event));
    this.#host.on('breaker', ({ server, from, to }) => {
      this.note(`${server} breaker ${from} → ${to}`);
      this.#member(server).isCircuitClosed = to === 'closed';
    });
  }

  async open(): Promise<void> {
    await this.#host.open({ mcpServers: Object.fromEntries(this.members.map(({ name, entry }) => [name, entry])) });
  }

  note(line: string): void {
    this.trace.push(`${this.clock.nowMs()} ${line}`);
  }

  advance(ms: number): Promise<void> {
    return this.clock.advanceAsync(ms);
  }

  /** True if the host has read a list of the server with this tool. */
  isListed({ name }: Member, tool: string): boolean {
    return this.#host.pin(name, tool) !== undefined;
  }

  status(): ReadonlyMap<string, StatusRow> {
    return new Map(this.#host.status().map((row) => [row.name, row]));
  }

  /** `workMs`: time that the server needs for the call. */
  call(member: Member, timeoutMs: number, workMs: number, abort?: AbortController): Asked {
    const nonce = `n${this.asked.length}`;
    const { name: server } = member;
    const tool = this.chance.happens(0.3) ? 'read' : 'write';
    const madeAtMs = this.clock.nowMs();
    const deadlineAtMs = madeAtMs + timeoutMs;
    const asked: Asked = {
      nonce,
      server,
      tool,
      madeAtMs,
      deadlineAtMs,
      outcomes: [],
      error: undefined,
      settledAtMs: 0,
      isForbidden: false,
    };
    this.asked.push(asked);
    const awayBy = this.operator?.awayBy(member);
    const settle = (outcome: string) => {
      asked.outcomes.push(outcome);
      asked.isForbidden = awayBy !== undefined && this.operator?.awayBy(member) === awayBy;
      asked.settledAtMs = this.clock.nowMs();
      this.note(`${server} ${tool} ${nonce}: ${outcome}`);
    };
    const client = member.isPerClient ? { instance: 'client' } : {};
    const options = { deadlineMs: timeoutMs, signal: abort?.signal, ...client };
    this.#host.call(server, tool, `{"nonce":"${nonce}","workMs":${workMs}}`, options).then(
      ({ bytes }) => {
        // An answer to a call from before the breaker opened does not close it.
        if (member.isCircuitClosed) member.hasTimedOut = false;
        settle('answered');
        if (!bytes.includes(`"${nonce}"`)) this.wrong.push(`${nonce} got the answer to another call`);
      },
      (error: unknown) => {
        if (!isHostError(error)) {
          this.wrong.push(`${nonce} ended with ${String(error)}`);
          return settle('no HostError');
        }
        asked.error = error;
        if (isTimeout(error)) member.hasTimedOut = true;
        settle(`${error.code} ${error.details.execution} ${error.details.reason ?? ''}`);
      },
    );
    return asked;
  }

  /** Lists the tools and ignores the outcome. */
  list({ name }: Member): void {
    this.#host.list(name, 'tools/list').catch(() => {});
  }

  askedBy(nonce: string): Asked | undefined {
    return this.asked[numberOf(nonce)];
  }

  reload({ name, upstream }: Member): void {
    this.operated(name, 'reload');
    if (upstream.kind === 'http') upstream.check.forgiven();
    this.#host.reload(name).catch((error: unknown) => {
      if (!this.operator?.mayBeUnknown(name, error)) this.wrong.push(`${name} reload: ${String(error)}`);
    });
  }

  /** Records a request of an operator, which may end connections in the current instant. */
  operated(name: string, what: string): void {
    this.note(`${name} ${what}`);
    this.#operatedAtMs.set(name, this.clock.nowMs());
  }

  /** Advances the clock until the deadlines of all calls are over. */
  async settle(): Promise<void> {
    const open = () => this.asked.filter(({ outcomes }) => outcomes.length === 0);
    const untilMs = Math.max(0, ...open().map(({ deadlineAtMs }) => deadlineAtMs)) + slackMs;
    await this.advance(Math.max(0, untilMs - this.clock.nowMs()));
    const left = open();
    if (left.length > 0) this.wrong.push(`${left.length} calls have no outcome: ${left[0]?.nonce}`);
  }

  async close(): Promise<void> {
    let isClosed = false;
    this.#isClosing = true;
    const closing = this.#host.close().then(() => {
      isClosed = true;
    });
    for (let step = 0; step < 100 && !isClosed; step++) await this.advance(100);
    if (!isClosed) {
      this.wrong.push('closing never ended');
      return;
    }
    await closing;
    await this.advance(0);
    this.#checkNothingLeft();
  }

  #checkNothingLeft(): void {
    const timers = this.clock.pendingTimers - this.timers.pending;
    if (timers > 0) this.wrong.push(`${timers} timers are left after closing`);
    if (this.#network.pools > 0) this.wrong.push(`${this.#network.pools} connection pools are left after closing`);
    for (const { name, upstream, isPerClient } of this.members) {
      if (upstream.kind === 'http') this.wrong.push(...upstream.wrong);
      const open = upstream.kind === 'http' ? upstream.port.exchanges : upstream.live;
      if (open > 0) this.wrong.push(`${name}: ${open} exchanges or processes are left after closing`);
      // A per-client server may have two: the process of its client, and the shared process, which an operator starts.
      if (upstream.kind === 'stdio' && upstream.liveMax > (isPerClient ? 2 : 1))
        this.wrong.push(`${name} had ${upstream.liveMax} processes at a time`);
    }
  }

  #heard({ server, from, to }: HostEventOf<'state'>): void {
    this.note(`${server} ${from} → ${to}`);
    const member = this.#member(server);
    if (to === 'ready') member.wasParked = member.isWakeSpent = false;
    if (to !== 'parked') return;
    member.isWakeSpent = member.wasParked;
    member.wasParked = true;
  }

  /** A call must not be cut while its caller waits, only because its server answers nothing else. An operator may end it. */
  #checkNotAtWork({ server, isShared, isOrderly }: EndedConnection): void {
    const { name, upstream, isOneAtATime, isPerClient, callMs } = this.#member(server);
    // Calls to a per-client server use the connection of their client alone.
    if (!isOneAtATime || this.#isClosing || isShared === isPerClient) return;
    const nowMs = this.clock.nowMs();
    if (isOrderly && this.#operatedAtMs.get(name) === nowMs) return;
    for (const { nonce, takenAtMs, isBegun, isAwaited } of upstream.mcp.cutJobs) {
      const call = nonce === undefined || !isAwaited() ? undefined : this.askedBy(nonce);
      if (!call || call.outcomes.length > 0 || nowMs >= Math.min(call.deadlineAtMs, takenAtMs + callMs)) continue;
      const what = isBegun ? 'it worked on' : 'what it worked on kept back';
      this.wrong.push(`${name} was restarted while ${what} ${nonce}, for ${nowMs - takenAtMs} ms`);
    }
  }

  #makeMember(name: string, mayBePerClient: boolean): Member {
    const { chance, clock, timers } = this;
    const isHttp = chance.happens(0.7);
    const isOneAtATime = chance.happens(0.3);
    const era = chance.happens(isHttp ? 0.75 : 0.5) ? 'legacy' : 'modern';
    const trace = (line: string) => this.note(line);
    const parts = { name, clock, timers, random: this.#worldChance.random, era, isOneAtATime, trace } as const;
    const callS = chance.oneOf([10, 60, 120]);
    const concurrency = chance.oneOf([1, 4, 64, 100, 100]);
    const isPerClient = mayBePerClient && chance.happens(0.4);
    const entry = {
      ...(isPerClient ? { isolation: 'per-client' } : {}),
      ...(isHttp ? { url: `http://${name}.test/mcp` } : { command: `simulated-${name}` }),
      lazy: chance.happens(0.7),
      keepAlive: chance.oneOf([0, '1m', '10m']),
      breaker: { threshold: chance.oneOf([1, 3, 5]), reset: chance.oneOf(['1s', '30s']) },
      timeouts: { start: '30s', call: `${callS}s` },
      concurrency,
      trustAnnotations: chance.happens(0.5),
    };
    const upstream = isHttp
      ? new SimulatedHttpServer(parts, {
          forgottenStatus: chance.happens(0.5) ? 404 : 400,
          answersAs: chance.happens(0.5) ? 'json' : 'events',
          lingers: chance.happens(0.2),
          isResumable: chance.happens(0.5),
          hasServerStream: chance.happens(0.5),
        })
      : new SimulatedStdioServer(parts);
    const fresh = { hasTimedOut: false, isCircuitClosed: true, wasParked: false, isWakeSpent: false };
    return { name, upstream, entry, isOneAtATime, isPerClient, callMs: callS * 1_000, concurrency, ...fresh };
  }

  #member(name: string): Member {
    const member = this.members.find((one) => one.name === name);
    if (!member) throw new Error(`no server named ${name}`);
    return member;
  }

  #httpServer(name: string): SimulatedHttpServer {
    const { upstream } = this.#member(name);
    if (upstream.kind !== 'http') throw new Error(`${name} is no HTTP server`);
    return upstream;
  }

  #stdioServer(name: string): SimulatedStdioServer {
    const { upstream } = this.#member(name);
    if (upstream.kind !== 'stdio') throw new Error(`${name} is no stdio server`);
    return upstream;
  }
}

/** The index of a call in `asked`. */
export const numberOf = (nonce: string): number => Number(nonce.slice(1));

const isTimeout = ({ code, details }: HostError): boolean =>
  code === 'timeout' || (code === 'outcome_uncertain' && details.reason === 'timeout');
