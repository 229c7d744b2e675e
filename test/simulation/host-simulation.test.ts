/**
 * A whole host on a FakeClock, driven by a seed through crashes, hangs, late replies, failed starts, floods, cancellations and
 * long sleeps; then the faults end, and the test checks the outcomes that callers got, and that nothing is left. `SEEDS` is
 * the number of seeds; `SEED=n` runs only the seed n, and prints what happened.
 */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { isHostError } from '../../src/kernel/errors.js';
import { type Random, randomInt, seededRandom } from '../../src/kernel/random.js';
import { fakePrincipal } from '../fakes/policy-call.js';
import { type Member, SimulatedHost } from './simulated-host.js';
import { allFaults, type Fate, type Start } from './simulated-server.js';
import { watchUnhandled } from './unhandled.js';

const seeds = Number(process.env.SEEDS ?? 1_000);
const onlySeed = process.env.SEED === undefined ? undefined : Number(process.env.SEED);

/** One timer ends deadlines that are close together. */
const slackMs = 20;
/** The longest wait of a breaker or a parked server between two attempts, including jitter. */
const longestProbeMs = 360_000;

interface Asked {
  readonly nonce: string;
  readonly server: string;
  readonly tool: 'read' | 'write';
  readonly deadlineAtMs: number;
  readonly outcomes: string[];
  settledAtMs: number;
  execution: string | undefined;
}

const faults = [
  ...(['die', 'die', 'silent', 'silent', 'wedge', 'wedge', 'starts', 'starts'] as const),
  ...(['faults', 'faults', 'one fault', 'one fault', 'well', 'well', 'token'] as const),
];
const oneFault: readonly Fate[] = ['hang', 'late', 'crash_sent', 'rejects', 'rejects'];
const operations = [
  ...(['stop', 'disable', 'missed', 'idle', 'reload'] as const),
  ...(['start', 'start', 'enable', 'enable', 'token', 'token'] as const),
];

class Simulation {
  readonly host: SimulatedHost;
  readonly asked: Asked[] = [];
  readonly #random: Random;
  readonly #cancellable = new Set<AbortController>();
  readonly #operations = new Set<Promise<void>>();
  #nonces = 0;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
    this.host = new SimulatedHost(seededRandom(seed ^ 0x5eed));
    for (let i = this.#int(2, 4); i > 0; i--) this.#addServer(`s${i}`);
  }

  /** Returns the faults found. */
  async run(): Promise<readonly string[]> {
    const { host } = this;
    for (let left = this.#int(100, 120); left > 0; left--) await this.#event();
    for (const { simulated } of host.members.values()) simulated.mend();
    await host.clock.advanceAsync(60_000 + slackMs);
    this.#checkSettled('after the faults');
    await this.#recover();
    if (this.#random() < 0.5) this.#flood();
    await this.#close();
    this.#checkAll();
    return host.wrong;
  }

  // --- what happens

  async #event(): Promise<void> {
    const chance = this.#random();
    if (chance < 0.35) this.#flood();
    else if (chance < 0.75) await this.host.clock.advanceAsync(this.#pauseMs());
    else if (chance < 0.89) this.#fault(this.#member());
    else if (chance < 0.94) this.#operate(this.#member());
    else this.#cancelSome();
  }

  #flood(): void {
    const burst = this.#random() < 0.04 ? this.#int(8, 16) : this.#int(1, 2);
    const server = this.#member().managed.definition.name;
    for (let i = 0; i < burst; i++) this.#ask(server);
  }

  #ask(server: string): void {
    const tool = this.#random() < 0.3 ? 'read' : 'write';
    const isShared = tool === 'read' && this.#random() < 0.5;
    const abort = this.#random() < 0.2 ? new AbortController() : undefined;
    if (abort) this.#cancellable.add(abort);
    this.#send(server, {
      tool,
      nonce: isShared ? `shared${this.#int(0, 3)}` : `n${this.#nonces++}`,
      timeoutMs: this.#oneOf([50, 500, 5_000, 60_000]),
      principal: this.#oneOf(['ann', 'bob', 'eve']),
      signal: abort?.signal,
      attempt: this.#random() < 0.1 ? 1 : 0,
    });
  }

  #send(
    server: string,
    how: {
      readonly tool: 'read' | 'write';
      readonly nonce: string;
      readonly timeoutMs: number;
      readonly principal: string;
      readonly signal?: AbortSignal | undefined;
      readonly attempt?: number;
    },
  ): Asked {
    const { host } = this;
    const { tool, nonce, timeoutMs, signal, attempt = 0 } = how;
    const deadlineAtMs = host.clock.nowMs() + timeoutMs;
    const asked: Asked = { nonce, server, tool, deadlineAtMs, outcomes: [], settledAtMs: 0, execution: undefined };
    this.asked.push(asked);
    const settle = (outcome: string) => {
      asked.outcomes.push(outcome);
      asked.settledAtMs = host.clock.nowMs();
      host.note(`${server} ${tool} ${nonce}: ${outcome}`);
    };
    const principal = fakePrincipal(how.principal);
    const args = `{"nonce":"${nonce}"}`;
    host.call(server, tool, args, { principal, deadlineMs: timeoutMs, signal, attempt }).then(
      ({ bytes }) => {
        settle('answered');
        if (!bytes.includes(`"${nonce}"`)) host.wrong.push(`${nonce} got the answer to another call`);
      },
      (error: unknown) => {
        if (!isHostError(error)) host.wrong.push(`${nonce} ended with ${String(error)}`);
        else asked.execution = error.details.execution;
        settle(isHostError(error) ? `${error.code} ${asked.execution}` : 'no HostError');
      },
    );
    return asked;
  }

  #fault({ simulated }: Member): void {
    const { session } = simulated;
    const kind = this.#oneOf(faults);
    this.host.note(`${simulated.parts.name} fault ${kind}`);
    if (kind === 'die') session?.die('exit');
    else if (kind === 'silent') session?.dieSilently();
    else if (kind === 'wedge') session?.wedge();
    else if (kind === 'starts') simulated.starts = Array.from({ length: this.#int(1, 8) }, () => this.#start());
    else if (kind === 'faults') {
      simulated.faultRate = this.#oneOf([0.05, 0.3, 1]);
      simulated.faults = allFaults;
    } else if (kind === 'well') simulated.faultRate = 0;
    else if (kind === 'one fault') {
      simulated.faultRate = 1;
      simulated.faults = [this.#oneOf(oneFault)];
    } else simulated.needsToken = true;
  }

  #start(): Start {
    return this.#oneOf(['well', 'transient', 'transient', 'permanent', 'auth', 'slow', 'stillborn', 'flap', 'flap']);
  }

  #operate({ managed, simulated }: Member): void {
    const { supervisor } = managed;
    const { name } = supervisor;
    const kind = this.#oneOf(operations);
    this.host.note(`${name} ${kind}`);
    if (kind === 'stop') this.#watch(this.host.stop(name));
    else if (kind === 'start') this.#watch(this.host.start(name));
    else if (kind === 'reload') this.#watch(this.host.reload(name));
    else if (kind === 'disable') this.#watch(supervisor.disable());
    else if (kind === 'enable') supervisor.enable();
    else if (kind === 'missed') supervisor.missed(supervisor.snapshot().run);
    else if (kind === 'idle') supervisor.idle();
    else {
      simulated.needsToken = false;
      supervisor.tokenChanged();
    }
  }

  #watch(operation: Promise<void>): void {
    const watched = operation.then(() => void this.#operations.delete(watched));
    this.#operations.add(watched);
  }

  #cancelSome(): void {
    for (const abort of this.#cancellable) {
      this.#cancellable.delete(abort);
      if (this.#random() < 0.7) abort.abort();
    }
  }

  /** The faults have ended: every server that is neither stopped by an operator nor ejected must recover. */
  async #recover(): Promise<void> {
    const { host } = this;
    let last: Asked[] = [];
    for (let leftMs = 2 * longestProbeMs; leftMs > 0; leftMs -= 90_000) {
      await host.clock.advanceAsync(90_000);
      last = [...host.members.keys()].map((server) =>
        this.#send(server, { tool: 'write', nonce: `n${this.#nonces++}`, timeoutMs: 30_000, principal: 'zoe' }),
      );
    }
    await host.clock.advanceAsync(30_000 + slackMs);
    for (const { server, outcomes } of last) {
      const { state } = host.member(server).managed.supervisor.snapshot();
      if (['stopped', 'disabled', 'ejected'].includes(state)) continue;
      if (outcomes[0] !== 'answered') host.wrong.push(`${server} did not come back: ${state}, ${outcomes[0]}`);
    }
    this.#checkSettled('after the recovery');
  }

  async #close(): Promise<void> {
    const { host } = this;
    let isClosed = false;
    const closing = host.close().then(() => {
      isClosed = true;
    });
    for (let step = 0; step < 100 && !isClosed; step++) await host.clock.advanceAsync(50);
    if (!isClosed) {
      host.wrong.push('closing never ended');
      return;
    }
    await closing;
    await host.clock.advanceAsync(0);
    const left = host.clock.pendingTimers - host.timers.pending;
    if (left > 0) host.wrong.push(`${left} timers are left after closing`);
  }

  // --- what must be true

  #checkSettled(when: string): void {
    const open = this.asked.filter(({ outcomes }) => outcomes.length === 0);
    if (open.length > 0) this.host.wrong.push(`${open.length} calls have no outcome ${when}: ${open[0]?.nonce}`);
    if (this.#operations.size > 0) this.host.wrong.push(`${this.#operations.size} operations hang ${when}`);
    for (const [name, { managed }] of this.host.members) {
      const { running, waiting } = managed.slots;
      const held = this.host.held(name);
      if (running + waiting + held + managed.retries.inFlight > 0) {
        this.host.wrong.push(`${name} ${when}: ${running} run, ${waiting} wait, ${held} leases`);
      }
    }
  }

  #checkAll(): void {
    const { wrong, members } = this.host;
    for (const asked of this.asked) {
      const { nonce, server, tool, outcomes, settledAtMs, deadlineAtMs, execution } = asked;
      const runs = this.host.member(server).simulated.ledger.get(nonce) ?? 0;
      if (outcomes.length !== 1) wrong.push(`${nonce} has ${outcomes.length} outcomes`);
      if (settledAtMs > deadlineAtMs + slackMs) wrong.push(`${nonce} ended ${settledAtMs - deadlineAtMs} ms late`);
      if (tool === 'write' && runs > 1) wrong.push(`${nonce} ran ${runs} times`);
      // A shared call may have run for another of its callers.
      if (nonce.startsWith('shared')) continue;
      if (outcomes[0] === 'answered' && runs === 0) wrong.push(`${nonce} was answered and never ran`);
      if (execution === 'not_executed' && runs > 0)
        wrong.push(`${nonce} (${tool}) ran, and its caller was told it did not`);
    }
    for (const [name, { simulated }] of members) {
      if (simulated.liveMax > 1) wrong.push(`${name} had ${simulated.liveMax} connections at a time`);
      if (simulated.live !== 0) wrong.push(`${name}: ${simulated.live} connections are left`);
    }
  }

  // --- chance

  #addServer(name: string): void {
    const entry = {
      command: 'simulated',
      lazy: this.#random() < 0.5,
      keepAlive: this.#oneOf([0, '1m', '10m']),
      restart: { max: this.#oneOf([0, 1, 5, 50]), onExhausted: this.#random() < 0.1 ? 'eject' : 'park' },
      breaker: { threshold: this.#oneOf([1, 3, 5]), reset: this.#oneOf(['1s', '30s']) },
      timeouts: { start: '30s', call: this.#oneOf(['1s', '60s']) },
      concurrency: this.#oneOf([1, 4, 64]),
      trustAnnotations: this.#random() < 0.7,
    };
    this.host.add(name, entry, this.#random() < 0.3);
  }

  #pauseMs(): number {
    const chance = this.#random();
    if (chance < 0.6) return this.#int(0, 60);
    if (chance < 0.85) return this.#int(60, 3_000);
    if (chance < 0.97) return this.#int(3_000, 60_000);
    return chance < 0.995 ? this.#int(60_000, 600_000) : 8 * 3_600_000;
  }

  #member(): Member {
    return this.#oneOf([...this.host.members.values()]);
  }

  #int(from: number, to: number): number {
    return randomInt(this.#random, from, to);
  }

  #oneOf<T>(choices: readonly T[]): T {
    return choices[this.#int(0, choices.length - 1)] as T;
  }
}

const takeUnhandled = watchUnhandled(onlySeed !== undefined);

/** The failure names its seed, which is enough to reproduce it. */
async function simulate(seed: number): Promise<Simulation> {
  const simulation = new Simulation(seed);
  const wrong = [...(await simulation.run()), ...takeUnhandled()];
  if (onlySeed !== undefined) console.log(simulation.host.trace.join('\n'));
  if (wrong.length > 0) throw new Error(`SEED=${seed} replays this:\n${wrong.slice(0, 10).join('\n')}`);
  return simulation;
}

const hashOf = ({ host }: Simulation): string => createHash('sha256').update(host.trace.join('\n')).digest('hex');

test(`${onlySeed === undefined ? `${seeds} seeds` : `seed ${onlySeed}`}: each call ends once and in time, nothing runs twice, every server recovers`, {
  timeout: 3_600_000,
}, async () => {
  const first = onlySeed ?? 1;
  const last = onlySeed ?? seeds;
  const told: Record<string, number> = {};
  let calls = 0;
  for (let seed = first; seed <= last; seed++) {
    const { asked } = await simulate(seed);
    calls += asked.length;
    for (const { outcomes } of asked) told[outcomes[0] ?? ''] = (told[outcomes[0] ?? ''] ?? 0) + 1;
  }
  console.log(`seeds ${first} to ${last}: ${calls} calls, ${JSON.stringify(told)}`);
  expect(told.answered).toBeGreaterThan(0);
});

if (onlySeed === undefined)
  test('the same seed gives the same run', async () => {
    for (let seed = 1; seed <= 20; seed++) {
      expect(hashOf(await simulate(seed)), `seed ${seed}`).toBe(hashOf(await simulate(seed)));
    }
  });
