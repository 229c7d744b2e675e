/**
 * Runs a simulated world with seeded faults of servers and networks. Then all faults end, and every server must answer again in
 * time (recovery-check.ts).
 * Safety: each call has one outcome, by its deadline; no write runs twice; `not_executed` is never reported for a call that ran; a
 * server is not restarted while it works on a call younger than its own timeout; nothing is left after closing.
 */
import type { Chance } from './chance.js';
import { untilServed } from './recovery-check.js';
import { changeServer } from './server-faults.js';
import { type Asked, type Member, SimulatedWorld, slackMs } from './simulated-world.js';

/** More than the connections of a server with a high `concurrency`. */
const wideBurst = 72;
const burstMs = 30_000;
/** Longest pause between two reads of a list, plus the time of a read. */
const relistMs = 130_000;

export class RecoverySimulation {
  readonly world: SimulatedWorld;
  /** For each server, the time from the end of the faults to its first answer. */
  readonly servedInMs: number[] = [];
  readonly #chance: Chance;
  readonly #cancellable = new Set<AbortController>();

  /** `hasOperator`: servers are also stopped, edited and removed, and some are per-client. */
  constructor(seed: number, hasOperator = false) {
    this.world = new SimulatedWorld(seed, hasOperator);
    this.#chance = this.world.chance;
  }

  /** Returns descriptions of all violations. */
  async run(): Promise<readonly string[]> {
    const { world } = this;
    await world.open();
    for (let left = this.#chance.int(20, 40); left > 0; left--) await this.#event();
    await this.#recover();
    await world.close();
    this.#checkCalls();
    return world.wrong;
  }

  async #event(): Promise<void> {
    const { world } = this;
    const chance = this.#chance.random();
    const member = this.#chance.oneOf(world.members);
    if (world.operator && this.#chance.happens(0.15)) {
      world.operator.act(member, this.#chance);
      this.#calls(member);
      return world.advance(this.#pauseMs());
    }
    if (chance < 0.2) this.#calls(member);
    else if (chance < 0.5) await world.advance(this.#pauseMs());
    else if (chance < 0.8) world.note(`${member.name} fault: ${changeServer(member.upstream, this.#chance)}`);
    else if (chance < 0.84) this.#longCall(member);
    else if (chance < 0.87) await this.#burst(member);
    else if (chance < 0.95) await this.#pressure(member);
    else if (chance < 0.96) {
      if (world.operator?.mayReload(member) !== false) world.reload(member);
    } else if (chance < 0.98) await this.#lostAgain(member);
    else this.#cancelSome();
  }

  #calls(member: Member): void {
    for (let left = this.#chance.int(1, 3); left > 0; left--) {
      const abort = this.#chance.happens(0.1) ? new AbortController() : undefined;
      if (abort) this.#cancellable.add(abort);
      const workMs = this.#chance.happens(0.2) ? this.#chance.int(0, 3_000) : 0;
      this.world.call(member, this.#chance.oneOf([500, 5_000, 30_000, 60_000]), workMs, abort);
    }
  }

  /** A call whose deadline is longer than its work. */
  #longCall(member: Member): void {
    this.world.call(member, 100_000, this.#chance.int(20_000, 90_000));
  }

  /** More calls than connections, each of some duration. Then the server may forget their session. */
  async #burst(member: Member): Promise<void> {
    const { upstream, name } = member;
    this.#burstOf(member);
    await this.world.advance(this.#chance.int(0, 500));
    if (upstream.kind !== 'http' || this.#chance.happens(0.5)) return;
    this.world.note(`${name} forgets its sessions during a burst`);
    upstream.forgetSessions();
  }

  #burstOf(member: Member): Asked[] {
    const count = member.concurrency > 64 ? wideBurst : 8;
    return Array.from({ length: count }, () => this.world.call(member, burstMs, this.#chance.int(100, 1_500)));
  }

  /** Repeated calls that ignore their outcomes. */
  async #pressure(member: Member): Promise<void> {
    const everyMs = this.#chance.oneOf([300, 1_000, 5_000, 10_000]);
    for (let left = this.#chance.int(5, 20); left > 0; left--) {
      this.world.call(member, 5_000, 0);
      await this.world.advance(everyMs);
    }
  }

  /** Redeploys the server, and loses its sessions again while its tools are read. */
  async #lostAgain(member: Member): Promise<void> {
    const { upstream, name } = member;
    if (upstream.kind !== 'http' || upstream.mcp.era === 'modern') return;
    upstream.redeploy('legacy');
    upstream.lists = [this.#chance.oneOf(['hang', 'late', 'http_429_wait'] as const)];
    this.world.note(`${name} loses its sessions again and again`);
    for (let left = this.#chance.int(2, 4); left > 0; left--) {
      this.#calls(member);
      await this.world.advance(this.#chance.int(500, 6_500));
      upstream.forgetSessions();
      upstream.openings = [this.#chance.oneOf(['slow', 'well'] as const)];
      // A list does not wait for the tools, so this list notices the lost session.
      this.world.list(member);
      this.#calls(member);
      await this.world.advance(this.#chance.int(0, 100));
    }
  }

  #cancelSome(): void {
    for (const abort of this.#cancellable) {
      this.#cancellable.delete(abort);
      if (this.#chance.happens(0.7)) abort.abort();
    }
  }

  #pauseMs(): number {
    const chance = this.#chance.random();
    if (chance < 0.5) return this.#chance.int(0, 60);
    if (chance < 0.8) return this.#chance.int(60, 3_000);
    return chance < 0.98 ? this.#chance.int(3_000, 60_000) : this.#chance.int(60_000, 900_000);
  }

  async #recover(): Promise<void> {
    const { world } = this;
    world.note('the world is mended');
    for (const { upstream } of world.members) upstream.mend();
    world.operator?.restoreAll();
    this.servedInMs.push(...(await untilServed(world)));
    await world.settle();
    // Calls every server a second time: it must still answer after earlier work has failed.
    if (world.wrong.length === 0) this.servedInMs.push(...(await untilServed(world)));
    await world.settle();
    // A server that was replaced has another connection, whose tools need not be those of the last release.
    if (world.wrong.length === 0 && !world.operator) await this.#checkTools();
    if (world.wrong.length === 0 && this.#chance.happens(0.3)) await this.#forgetInHealth();
  }

  /** The tools of a redeployed legacy server must have been read in its new session. */
  async #checkTools(): Promise<void> {
    const { world } = this;
    await world.advance(relistMs);
    for (const member of world.members) {
      const { kind, mcp } = member.upstream;
      if (kind !== 'http' || mcp.era !== 'legacy' || world.isListed(member, `release-${mcp.release}`)) continue;
      world.wrong.push(`${member.name} is at release ${mcp.release}, whose tools were not read`);
    }
  }

  /** A healthy server that forgets its sessions under full load must not fail a call: refused requests are sent again. */
  async #forgetInHealth(): Promise<void> {
    const { world } = this;
    const quick = world.members.filter(({ upstream, isOneAtATime }) => upstream.kind === 'http' && !isOneAtATime);
    const member = quick.find(({ concurrency }) => concurrency > 64) ?? quick[0];
    if (member?.upstream.kind !== 'http' || member.upstream.mcp.era === 'modern') return;
    const calls = this.#burstOf(member);
    await world.advance(this.#chance.int(0, 1_000));
    world.note(`${member.name} forgets its sessions in health`);
    member.upstream.forgetSessions();
    calls.push(world.call(member, burstMs, 0));
    await world.settle();
    for (const { nonce, outcomes } of calls)
      if (outcomes[0] !== 'answered') world.wrong.push(`${nonce} was lost with a session: ${outcomes[0]}`);
  }

  #checkCalls(): void {
    const { asked, wrong, members } = this.world;
    const ledgers = new Map(members.map(({ name, upstream }) => [name, upstream.mcp.ledger]));
    for (const { nonce, server, tool, outcomes, settledAtMs, deadlineAtMs, error, isForbidden } of asked) {
      const runs = ledgers.get(server)?.get(nonce) ?? 0;
      if (outcomes.length !== 1) wrong.push(`${nonce} has ${outcomes.length} outcomes`);
      if (settledAtMs > deadlineAtMs + slackMs) wrong.push(`${nonce} ended ${settledAtMs - deadlineAtMs} ms late`);
      if (tool === 'write' && runs > 1) wrong.push(`${nonce} ran ${runs} times`);
      if (outcomes[0] === 'answered' && runs === 0) wrong.push(`${nonce} was answered and never ran`);
      // A read that its caller cancels at once may be reported as `uncertain`, although nothing was sent.
      const isRefused = error?.details.execution === 'not_executed' || error?.code === 'cancelled';
      if (isForbidden && (runs > 0 || !isRefused))
        wrong.push(`${nonce} was made while ${server} was stopped or removed: ${outcomes[0]}, ${runs} runs`);
      if (error?.details.execution === 'not_executed' && runs > 0)
        wrong.push(`${nonce} (${tool}) ran, and its caller was told that it did not: ${outcomes[0]}`);
    }
  }
}
