/**
 * A whole Host, as host.ts makes it, on a FakeClock: real sessions, peers and HTTP channels over simulated pipes and sockets.
 * A seed drives it through faults of servers and networks; then the world is mended, and every server must answer again in time.
 *
 * Safety: each call has one outcome, by its deadline; no write runs twice; `not_executed` is never said of a call that ran;
 * a server that works on a call younger than its own timeout is not restarted; nothing is left after closing.
 * Liveness: once the world is healthy, each server that is called answers within `connectionMs`, or, where calls had timed out,
 * within the breaker's own wait and one trial; a parked server counts from the first call after 5 s parked.
 */
import { Host } from '../../src/host/host.js';
import type { HostEventOf } from '../../src/host/host-events.js';
import type { StatusRow } from '../../src/host/status.js';
import { type HostError, isHostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { type Random, randomInt, seededRandom } from '../../src/kernel/random.js';
import { Connector } from '../../src/session/connector.js';
import { type HttpFate, httpFaults, type Opening, SimulatedHttpServer } from './simulated-http-server.js';
import { SimulatedNetwork } from './simulated-network.js';
import { SimulatedStdioServer, type Start, type StdioFate, stdioFaults } from './simulated-stdio-server.js';
import { Timers } from './timers.js';

/** Deadlines that fall close together are ended by one timer. */
const slackMs = 20;
const connectionMs = 60_000;
/** Our own check of a session, and one call that is answered at once. */
const trialMs = 6_000;
/** For a call in the healthy world: longer than it takes to find out that nothing can be sent. */
const wantedMs = 20_000;
const parkedCallMs = 5_000;
/** What was under way when the world was mended is over by then; a process that hangs for ever was replaced. */
const aftermathMsMax = 600_000;

interface Asked {
  readonly nonce: string;
  readonly server: string;
  readonly tool: 'read' | 'write';
  readonly madeAtMs: number;
  readonly deadlineAtMs: number;
  readonly outcomes: string[];
  error: HostError | undefined;
  settledAtMs: number;
}

interface Member {
  readonly name: string;
  readonly upstream: SimulatedHttpServer | SimulatedStdioServer;
  readonly entry: Readonly<Record<string, unknown>>;
  readonly isOneAtATime: boolean;
  readonly callMs: number;
  readonly concurrency: number;
  /** A call ended by a timeout since the last one that was answered. */
  hasTimedOut: boolean;
  /** It was parked, and a call has tried it since. */
  isWakeSpent: boolean;
  wasParked: boolean;
}

interface Recovery {
  readonly member: Member;
  readonly startedAtMs: number;
  /** The number of its first call: earlier ones are of the time before. */
  readonly firstCall: number;
  /** From here on nothing of the time before is under way. */
  healthyAtMs: number;
  /** What the first refusal in the healthy world said about when to come back. */
  toldUntilMs: number | undefined;
  readonly calls: Asked[];
}

const oneHttpFault: readonly HttpFate[] = ['hang', 'late', 'reset_before', 'http_429', 'http_429_wait', 'http_502'];
const oneStdioFault: readonly StdioFate[] = ['hang', 'late', 'crash'];
const openings: readonly Opening[] = ['well', 'rpc_error', 'rpc_error', 'http_500', 'hang', 'slow'];
const starts: readonly Start[] = ['well', 'exits', 'exits', 'missing', 'silent', 'flap'];
const httpEvents = [
  ...([
    'forget',
    'forget',
    'forget badly',
    'forget badly',
    'close port',
    'close port',
    'open port',
    'open port',
  ] as const),
  ...(['reset', 'silence port', 'openings', 'faults', 'one fault', 'well', 'well', 'well'] as const),
];
const stdioEvents = ['die', 'die', 'wedge', 'starts', 'faults', 'one fault', 'well', 'well'] as const;

export class RecoverySimulation {
  readonly clock = new FakeClock();
  readonly timers = new Timers(this.clock);
  readonly asked: Asked[] = [];
  readonly trace: string[] = [];
  /** Sentences about what must never be. */
  readonly wrong: string[] = [];
  /** How long after the world was healthy each server answered. */
  readonly recoveredInMs: number[] = [];
  readonly #random: Random;
  readonly #worldRandom: Random;
  readonly #members: Member[] = [];
  readonly #network: SimulatedNetwork;
  readonly #host: Host;
  readonly #cancellable = new Set<AbortController>();

  constructor(seed: number) {
    this.#random = seededRandom(seed);
    this.#worldRandom = seededRandom(seed ^ 0x3013d);
    this.#network = new SimulatedNetwork({
      timers: this.timers,
      random: this.#worldRandom,
      portOf: (origin) => {
        const { upstream } = this.#member(new URL(origin).hostname.split('.')[0] ?? '');
        if (upstream.kind !== 'http') throw new Error(`${origin} is no HTTP server`);
        return upstream.port;
      },
    });
    for (let n = this.#int(1, 3); n > 0; n--) this.#members.push(this.#makeMember(`s${n}`));
    const transports = {
      pool: this.#network.pool,
      stdio: ({ name }: { readonly name: string }) => {
        const { upstream } = this.#member(name);
        if (upstream.kind !== 'stdio') throw new Error(`${name} is no stdio server`);
        return upstream.open();
      },
    };
    const onProblem = (error: unknown) => this.note(`problem: ${String(error)}`);
    this.#host = new Host(
      { clock: this.clock, random: seededRandom(seed ^ 0x5eed), onProblem },
      (options) => new Connector({ ...options, transports }),
    );
    // Not every event: the records of calls would cost more than the calls.
    this.#host.on('state', (event) => this.#heard(event));
    this.#host.on('breaker', ({ server, from, to }) => this.note(`${server} breaker ${from} → ${to}`));
  }

  /** Returns what was wrong. */
  async run(): Promise<readonly string[]> {
    const mcpServers = Object.fromEntries(this.#members.map(({ name, entry }) => [name, entry]));
    await this.#host.open({ mcpServers });
    for (let left = this.#int(20, 40); left > 0; left--) await this.#event();
    await this.#recover();
    await this.#close();
    this.#checkCalls();
    return this.wrong;
  }

  note(line: string): void {
    this.trace.push(`${this.clock.nowMs()} ${line}`);
  }

  // --- what happens

  async #event(): Promise<void> {
    const chance = this.#random();
    const member = this.#oneOf(this.#members);
    if (chance < 0.2) this.#calls(member, this.#int(1, 3));
    else if (chance < 0.5) await this.clock.advanceAsync(this.#pauseMs());
    else if (chance < 0.8) this.#fault(member);
    else if (chance < 0.84) this.#longCall(member);
    else if (chance < 0.87) await this.#burst(member);
    else if (chance < 0.95) await this.#pressure(member);
    else if (chance < 0.96) this.#reload(member);
    else this.#cancelSome();
  }

  #calls(member: Member, count: number): void {
    for (let left = count; left > 0; left--) {
      const abort = this.#random() < 0.1 ? new AbortController() : undefined;
      if (abort) this.#cancellable.add(abort);
      this.#send(
        member,
        this.#oneOf([500, 5_000, 30_000, 60_000]),
        this.#random() < 0.8 ? 0 : this.#int(0, 3_000),
        abort,
      );
    }
  }

  /** Its caller and its server both allow it the time that it needs. */
  #longCall(member: Member): void {
    this.#send(member, 100_000, this.#int(20_000, 90_000));
  }

  /** More calls than there are connections, each of some length. */
  async #burst(member: Member): Promise<void> {
    const isWide = member.concurrency > 64;
    for (let left = isWide ? 72 : 8; left > 0; left--) this.#send(member, 30_000, this.#int(100, 1_500));
    await this.clock.advanceAsync(this.#int(0, 500));
    if (this.#random() >= 0.5 || member.upstream.kind !== 'http') return;
    this.note(`${member.name} forgets its sessions during a burst`);
    member.upstream.forgetSessions();
  }

  /** Calls that come again and again, whatever becomes of them. */
  async #pressure(member: Member): Promise<void> {
    const everyMs = this.#oneOf([300, 1_000, 5_000, 10_000]);
    for (let left = this.#int(5, 20); left > 0; left--) {
      this.#send(member, 5_000, 0);
      await this.clock.advanceAsync(everyMs);
    }
  }

  #reload({ name }: Member): void {
    this.note(`${name} reload`);
    this.#host.reload(name).catch((error: unknown) => this.wrong.push(`${name} reload: ${String(error)}`));
  }

  #send(member: Member, timeoutMs: number, workMs: number, abort?: AbortController): Asked {
    const nonce = `n${this.asked.length}`;
    const { name: server } = member;
    const tool = this.#random() < 0.3 ? 'read' : 'write';
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
    };
    this.asked.push(asked);
    const settle = (outcome: string) => {
      asked.outcomes.push(outcome);
      asked.settledAtMs = this.clock.nowMs();
      this.note(`${server} ${tool} ${nonce}: ${outcome}`);
    };
    const args = `{"nonce":"${nonce}","workMs":${workMs}}`;
    const signal = abort?.signal;
    this.#host.call(server, tool, args, { deadlineMs: timeoutMs, ...(signal ? { signal } : {}) }).then(
      ({ bytes }) => {
        member.hasTimedOut = false;
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

  #fault({ name, upstream }: Member): void {
    const kind = upstream.kind === 'http' ? this.#httpFault(upstream) : this.#stdioFault(upstream);
    this.note(`${name} fault: ${kind}`);
  }

  #httpFault(upstream: SimulatedHttpServer): string {
    const kind = this.#oneOf(httpEvents);
    const fillOpenings = () => {
      upstream.openings = Array.from({ length: this.#int(1, 4) }, () => this.#oneOf(openings));
    };
    if (kind === 'forget') upstream.forgetSessions();
    else if (kind === 'forget badly') {
      upstream.forgetSessions();
      fillOpenings();
    } else if (kind === 'openings') fillOpenings();
    else if (kind === 'close port') upstream.port.close();
    else if (kind === 'open port') upstream.port.open();
    else if (kind === 'silence port') upstream.port.silence();
    else if (kind === 'reset') upstream.port.resetAll();
    else if (kind === 'well') upstream.faultRate = 0;
    else {
      upstream.faultRate = kind === 'one fault' ? 1 : this.#oneOf([0.1, 0.5, 1]);
      upstream.faults = kind === 'one fault' ? [this.#oneOf(oneHttpFault)] : httpFaults;
      upstream.retryAfterS = this.#oneOf([0, 1, 10, 60, 1_000]);
    }
    return kind;
  }

  #stdioFault(upstream: SimulatedStdioServer): string {
    const kind = this.#oneOf(stdioEvents);
    if (kind === 'die') upstream.process?.die();
    else if (kind === 'wedge') upstream.process?.wedge();
    else if (kind === 'starts') upstream.starts = Array.from({ length: this.#int(1, 8) }, () => this.#oneOf(starts));
    else if (kind === 'well') upstream.faultRate = 0;
    else {
      upstream.faultRate = kind === 'one fault' ? 1 : this.#oneOf([0.1, 0.5, 1]);
      upstream.faults = kind === 'one fault' ? [this.#oneOf(oneStdioFault)] : stdioFaults;
    }
    return kind;
  }

  #cancelSome(): void {
    for (const abort of this.#cancellable) {
      this.#cancellable.delete(abort);
      if (this.#random() < 0.7) abort.abort();
    }
  }

  #heard({ server, from, to }: HostEventOf<'state'>): void {
    const member = this.#member(server);
    this.note(`${server} ${from} → ${to}`);
    if (to === 'parked') {
      member.isWakeSpent = member.wasParked;
      member.wasParked = true;
    } else if (to === 'ready') member.wasParked = member.isWakeSpent = false;
    if (to === 'closing') this.#checkNotAtWork(member);
  }

  // --- once the world is healthy

  async #recover(): Promise<void> {
    this.note('the world is mended');
    for (const { upstream } of this.#members) upstream.mend();
    await this.#untilServed();
    await this.#untilSettled();
    // Whoever answered once still does, also when what was under way has ended badly since.
    if (this.wrong.length === 0) await this.#untilServed();
    await this.#untilSettled();
  }

  /** Calls every server once a second until it answers, or has had its time. */
  async #untilServed(): Promise<void> {
    const nowMs = this.clock.nowMs();
    const begin = { startedAtMs: nowMs, firstCall: this.asked.length, healthyAtMs: nowMs, toldUntilMs: undefined };
    let open: Recovery[] = this.#members.map((member) => ({ ...begin, member, calls: [] }));
    while (open.length > 0) {
      for (const { member, calls } of open) calls.push(this.#send(member, wantedMs, 0));
      await this.clock.advanceAsync(1_000);
      const rows = new Map(this.#host.status().map((row) => [row.name, row]));
      open = open.filter((recovery) => !this.#isOver(recovery, rows.get(recovery.member.name)));
    }
  }

  async #untilSettled(): Promise<void> {
    const open = this.asked.filter(({ outcomes }) => outcomes.length === 0);
    const untilMs = Math.max(0, ...open.map(({ deadlineAtMs }) => deadlineAtMs)) + slackMs;
    await this.clock.advanceAsync(Math.max(0, untilMs - this.clock.nowMs()));
    const left = this.asked.filter(({ outcomes }) => outcomes.length === 0);
    if (left.length > 0) this.wrong.push(`${left.length} calls have no outcome: ${left[0]?.nonce}`);
  }

  /** Whether it answered; or has not in time, which is noted. */
  #isOver(recovery: Recovery, row: StatusRow | undefined): boolean {
    const { member, calls } = recovery;
    const nowMs = this.clock.nowMs();
    const answered = calls.find(({ outcomes }) => outcomes[0] === 'answered');
    if (answered) {
      this.recoveredInMs.push(Math.max(0, answered.settledAtMs - recovery.healthyAtMs));
      return true;
    }
    if (this.#hasAftermath(recovery) && nowMs < recovery.startedAtMs + aftermathMsMax) {
      recovery.healthyAtMs = nowMs;
      recovery.toldUntilMs = undefined;
      return false;
    }
    recovery.toldUntilMs ??= this.#toldUntilMs(recovery, row);
    const limitMs = Math.max(recovery.healthyAtMs + connectionMs, recovery.toldUntilMs ?? 0);
    if (nowMs <= limitMs + slackMs) return this.#isStatusWrong(recovery, row);
    const outcome = calls.findLast(({ outcomes }) => outcomes.length > 0)?.outcomes[0];
    const sinceMs = nowMs - recovery.healthyAtMs;
    this.wrong.push(
      `${member.name} has not answered ${sinceMs} ms after it was healthy: ${row?.state}/${row?.circuit}, ${outcome}`,
    );
    return true;
  }

  /** Something of the time before is still under way. */
  #hasAftermath({ member: { name, upstream }, startedAtMs, firstCall }: Recovery): boolean {
    if (upstream.hung > 0) return true;
    for (const { nonce, takenAtMs } of upstream.mcp.jobs)
      if (nonce === undefined ? takenAtMs <= startedAtMs : numberOf(nonce) < firstCall) return true;
    for (let n = 0; n < firstCall; n++) {
      const { server, outcomes } = this.asked[n] as Asked;
      if (server === name && outcomes.length === 0) return true;
    }
    return false;
  }

  /** What callers are told, where the contract lets a server stay away for longer than after a lost connection. */
  #toldUntilMs({ member, healthyAtMs, calls }: Recovery, row: StatusRow | undefined): number | undefined {
    const told = calls.findLast(({ settledAtMs, outcomes }) => outcomes.length > 0 && settledAtMs >= healthyAtMs);
    const { code, details } = told?.error ?? {};
    if (!told || !details) return undefined;
    const waitMs = (details.retryAfterMs ?? 0) + told.settledAtMs;
    if (code === 'circuit_open' && member.hasTimedOut) return waitMs + trialMs;
    if (code === 'overloaded') return waitMs + connectionMs;
    if (row?.state !== 'parked') return undefined;
    const parkedMs = member.isWakeSpent ? (row.nextProbeInMs ?? 0) : parkedCallMs;
    return this.clock.nowMs() + parkedMs + connectionMs;
  }

  // --- what must be true

  /** A call that could not be sent in a healthy world, and nothing in the status that says so. */
  #isStatusWrong({ member, healthyAtMs, calls }: Recovery, row: StatusRow | undefined): boolean {
    const unsent = calls.find(
      ({ madeAtMs, error }) =>
        madeAtMs > healthyAtMs && error?.code === 'timeout' && error.details.execution === 'not_executed',
    );
    if (!unsent || row?.state !== 'ready' || row.circuit !== 'closed') return false;
    this.wrong.push(
      `${member.name}: status says ready/closed, and ${unsent.nonce} could not be sent in ${wantedMs} ms`,
    );
    return true;
  }

  #checkNotAtWork({ name, upstream, isOneAtATime, callMs }: Member): void {
    if (!isOneAtATime) return;
    const nowMs = this.clock.nowMs();
    for (const { nonce, begunAtMs } of upstream.mcp.jobs) {
      const call = nonce === undefined ? undefined : this.asked[numberOf(nonce)];
      if (!call || begunAtMs === undefined || nowMs >= Math.min(call.deadlineAtMs, begunAtMs + callMs)) continue;
      this.wrong.push(`${name} was restarted while it worked on ${nonce}, for ${nowMs - begunAtMs} ms`);
    }
  }

  async #close(): Promise<void> {
    let isClosed = false;
    const closing = this.#host.close().then(() => {
      isClosed = true;
    });
    for (let step = 0; step < 100 && !isClosed; step++) await this.clock.advanceAsync(100);
    if (!isClosed) {
      this.wrong.push('closing never ended');
      return;
    }
    await closing;
    await this.clock.advanceAsync(0);
    const left = this.clock.pendingTimers - this.timers.pending;
    if (left > 0) this.wrong.push(`${left} timers are left after closing`);
    if (this.#network.pools > 0) this.wrong.push(`${this.#network.pools} connection pools are left after closing`);
    for (const { name, upstream } of this.#members) {
      const open = upstream.kind === 'http' ? upstream.port.exchanges : upstream.live;
      if (open > 0) this.wrong.push(`${name}: ${open} exchanges or processes are left after closing`);
      if (upstream.kind === 'stdio' && upstream.liveMax > 1)
        this.wrong.push(`${name} had ${upstream.liveMax} processes at a time`);
    }
  }

  #checkCalls(): void {
    for (const { nonce, server, tool, outcomes, settledAtMs, deadlineAtMs, error } of this.asked) {
      const runs = this.#member(server).upstream.mcp.ledger.get(nonce) ?? 0;
      if (outcomes.length !== 1) this.wrong.push(`${nonce} has ${outcomes.length} outcomes`);
      if (settledAtMs > deadlineAtMs + slackMs) this.wrong.push(`${nonce} ended ${settledAtMs - deadlineAtMs} ms late`);
      if (tool === 'write' && runs > 1) this.wrong.push(`${nonce} ran ${runs} times`);
      if (outcomes[0] === 'answered' && runs === 0) this.wrong.push(`${nonce} was answered and never ran`);
      if (error?.details.execution === 'not_executed' && runs > 0)
        this.wrong.push(`${nonce} (${tool}) ran, and its caller was told that it did not: ${outcomes[0]}`);
    }
  }

  // --- chance

  #makeMember(name: string): Member {
    const isHttp = this.#random() < 0.7;
    const isOneAtATime = this.#random() < 0.3;
    const era = this.#random() < (isHttp ? 0.75 : 0.5) ? 'legacy' : 'modern';
    const { clock, timers } = this;
    const parts = { name, clock, timers, random: this.#worldRandom, era, isOneAtATime } as const;
    const trace = (line: string) => this.note(line);
    const callS = this.#oneOf([10, 60, 120]);
    const concurrency = this.#oneOf([1, 4, 64, 100, 100]);
    const entry = {
      ...(isHttp ? { url: `http://${name}.test/mcp` } : { command: 'simulated' }),
      lazy: this.#random() < 0.7,
      keepAlive: this.#oneOf([0, '1m', '10m']),
      breaker: { threshold: this.#oneOf([1, 3, 5]), reset: this.#oneOf(['1s', '30s']) },
      timeouts: { start: '30s', call: `${callS}s` },
      concurrency,
      trustAnnotations: this.#random() < 0.5,
    };
    const upstream = isHttp
      ? new SimulatedHttpServer(
          { ...parts, trace },
          {
            forgottenStatus: this.#random() < 0.5 ? 404 : 400,
            answersAs: this.#random() < 0.5 ? 'json' : 'events',
            lingers: this.#random() < 0.2,
            isResumable: this.#random() < 0.5,
            hasServerStream: this.#random() < 0.5,
          },
        )
      : new SimulatedStdioServer({ ...parts, trace });
    const start = { hasTimedOut: false, isWakeSpent: false, wasParked: false };
    return { name, upstream, entry, isOneAtATime, callMs: callS * 1_000, concurrency, ...start };
  }

  #pauseMs(): number {
    const chance = this.#random();
    if (chance < 0.5) return this.#int(0, 60);
    if (chance < 0.8) return this.#int(60, 3_000);
    return chance < 0.98 ? this.#int(3_000, 60_000) : this.#int(60_000, 900_000);
  }

  #member(name: string): Member {
    const member = this.#members.find((one) => one.name === name);
    if (!member) throw new Error(`no server named ${name}`);
    return member;
  }

  #int(from: number, to: number): number {
    return randomInt(this.#random, from, to);
  }

  #oneOf<T>(choices: readonly T[]): T {
    return choices[this.#int(0, choices.length - 1)] as T;
  }
}

/** The place of a call among all that were asked. */
const numberOf = (nonce: string): number => Number(nonce.slice(1));

const isTimeout = ({ code, details }: HostError): boolean =>
  code === 'timeout' || (code === 'outcome_uncertain' && details.reason === 'timeout');
