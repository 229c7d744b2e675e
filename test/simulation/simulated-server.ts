/**
 * A server that exists only on a FakeClock. At random it starts, answers, hangs, answers late, dies and returns. It records
 * executed calls in a ledger that outlives its runs, so that the outcomes reported to callers can be checked.
 */

import type { CancelSignal } from '../../src/kernel/cancel-signal.js';
import type { Cancel } from '../../src/kernel/clock.js';
import { type ErrorCode, HostError } from '../../src/kernel/errors.js';
import type { FakeClock } from '../../src/kernel/fake-clock.js';
import { type Random, randomInt } from '../../src/kernel/random.js';
import type { ServerList } from '../../src/session/lists.js';
import type { CallOptions, Session, ToolArguments } from '../../src/session/session.js';
import type { OutboundFrame } from '../../src/wire/channel.js';
import { MAY_HOLD_ERROR, MAY_HOLD_TTL } from '../../src/wire/json-scan.js';
import type { Answer } from '../../src/wire/peer-interface.js';
import { givenUp, lost, refused } from '../../src/wire/wire-errors.js';
import type { Timers } from './timers.js';

/** Outcome of a start. `flap`: it succeeds, and the server dies after a while. */
export type Start = 'well' | 'transient' | 'permanent' | 'auth' | 'slow' | 'stillborn' | 'flap';

export type Fate = 'answer' | 'hang' | 'late' | 'crash_unsent' | 'crash_sent' | 'rejects' | 'refuses';

export const allFaults: readonly Fate[] = ['hang', 'late', 'crash_unsent', 'crash_sent', 'rejects', 'refuses'];

/** One tool may run twice, the other may not. */
const items = ['{"name":"read","annotations":{"readOnlyHint":true}}', '{"name":"write"}'].map((raw) => ({
  key: (JSON.parse(raw) as { name: string }).name,
  raw: Buffer.from(raw),
}));
const tools: ServerList = { items, pages: 1, ttlMs: 0, cacheScope: 'private' };

const written = { method: 'tools/call', phase: 'written' } as OutboundFrame;

export interface ServerParts {
  readonly name: string;
  readonly clock: FakeClock;
  readonly timers: Timers;
  readonly random: Random;
  /** It continues its requests after the connection is lost, as a remote server does. */
  readonly isRemote: boolean;
  readonly startTimeoutMs: number;
  readonly trace: (line: string) => void;
}

export class SimulatedServer {
  readonly parts: ServerParts;
  /** Nonce → how often it was executed. */
  readonly ledger = new Map<string, number>();
  /** Outcomes of the next starts. When empty, they succeed. */
  starts: Start[] = [];
  /** Share of calls with a fault. */
  faultRate = 0;
  /** The possible faults. */
  faults = allFaults;
  needsToken = false;
  session: SimulatedSession | undefined;
  /** Number of running attempts and connections that are not closed. */
  live = 0;
  liveMax = 0;

  constructor(parts: ServerParts) {
    this.parts = parts;
  }

  readonly connect = (signal: CancelSignal, onLost: (error: HostError) => void): Promise<Session> => {
    const { random, timers, trace, name, startTimeoutMs } = this.parts;
    const start = this.starts.shift() ?? 'well';
    const ignoresAbort = random() < 0.2;
    this.live++;
    this.liveMax = Math.max(this.liveMax, this.live);
    trace(`${name} starts: ${start}`);
    return new Promise((resolve, reject) => {
      const fail = (code: ErrorCode, reason: string) => {
        this.live--;
        reject(new HostError(code, `server '${name}': ${reason}`, { server: name, reason, execution: 'not_executed' }));
      };
      const end = () => {
        signal.removeEventListener('abort', onAbort);
        if (start === 'slow') return fail('connect_failed', 'start_timeout');
        if (start === 'auth' || this.needsToken) return fail('needs_reauth', 'token');
        if (start === 'transient') return fail('connect_failed', 'exit');
        if (start === 'permanent') return fail('connect_failed', 'ENOENT');
        const session = new SimulatedSession(this, onLost);
        this.session = session;
        if (start === 'stillborn') session.die('exit');
        if (start === 'flap') session.dieAfter(randomInt(random, 1, 40_000));
        resolve(session as unknown as Session);
      };
      const cancel = timers.after(start === 'slow' ? startTimeoutMs : randomInt(random, 0, 400), end);
      const onAbort = () => {
        if (ignoresAbort && start !== 'slow') return;
        cancel();
        fail('cancelled', 'called_off');
      };
      signal.addEventListener('abort', onAbort, { once: true });
    });
  };

  execute(nonce: string): void {
    this.ledger.set(nonce, (this.ledger.get(nonce) ?? 0) + 1);
  }

  /** Ends all faults. Faults that have begun continue. */
  mend(): void {
    this.starts = [];
    this.faultRate = 0;
    this.needsToken = false;
    this.session?.calm();
  }
}

interface Owed {
  isSent: boolean;
  fail(error: HostError): void;
}

/** The part of a Session that the supervisor and the last stage use, with the deadlines of its peer. */
export class SimulatedSession {
  closedBy: HostError | undefined;
  /** Time of its last answer. */
  lastMessageAtMs: number;
  readonly facts = { era: 'legacy', version: '2025-11-25', capabilities: Buffer.from('{"tools":{}}') };
  readonly #server: SimulatedServer;
  readonly #onLost: (error: HostError) => void;
  readonly #owed = new Set<Owed>();
  #isWedged = false;
  #cancelDeath: Cancel | undefined;
  #cancelLiveness: Cancel | undefined;
  #closing: Promise<void> | undefined;

  constructor(server: SimulatedServer, onLost: (error: HostError) => void) {
    this.#server = server;
    this.#onLost = onLost;
    this.lastMessageAtMs = server.parts.clock.nowMs();
  }

  get unanswered(): number {
    return this.#owed.size;
  }

  callTool(_tool: string, args: ToolArguments | undefined, options: CallOptions): Promise<Answer> {
    const { name, clock } = this.#server.parts;
    if (this.closedBy) return Promise.reject(lost(name, this.closedBy));
    if (options.signal?.aborted) return Promise.reject(refused(name, 'cancelled', 'cancelled before it was sent'));
    if (clock.nowMs() >= options.deadlineAtMs) return Promise.reject(refused(name, 'timeout', 'too late to be sent'));
    const { nonce } = JSON.parse(String(args)) as { nonce: string };
    return this.#owe(nonce, options);
  }

  callToolWithCallback(...[tool, args, options, done]: Parameters<Session['callToolWithCallback']>): void {
    this.callTool(tool, args, options).then(done, done);
  }

  async list(): Promise<ServerList> {
    return tools;
  }

  async probe(deadlineAtMs: number): Promise<'alive' | 'silent'> {
    const { timers, clock, random } = this.#server.parts;
    const isSilent = this.#isWedged || this.closedBy !== undefined;
    // In a real session any request that is given up starts the liveness watch.
    this.#watch();
    const ms = isSilent ? deadlineAtMs - clock.nowMs() : randomInt(random, 0, 100);
    await new Promise<void>((resolve) => void timers.after(ms, resolve));
    if (isSilent || this.closedBy) return 'silent';
    this.#heard();
    return 'alive';
  }

  /** Ends the connection, and notifies callers and the supervisor in random order, which must make no difference. */
  die(reason: string): void {
    if (this.closedBy) return;
    const { random } = this.#server.parts;
    if (random() < 0.5) {
      this.#end(reason);
      this.#tell();
    } else {
      this.closedBy = this.#error(reason);
      this.#tell();
      this.#end(reason);
    }
  }

  /** Ends the connection, and notifies the supervisor later. */
  dieSilently(): void {
    if (this.closedBy) return;
    const { timers, random } = this.#server.parts;
    this.#end('exit');
    timers.after(randomInt(random, 1, 2_000), () => this.#tell());
  }

  dieAfter(ms: number): void {
    this.#cancelDeath = this.#server.parts.timers.after(ms, () => this.die('exit'));
  }

  /** Accepts calls without answers until the silence is detected. */
  wedge(): void {
    this.#isWedged = true;
  }

  calm(): void {
    this.#cancelDeath?.();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { timers, random, name, trace } = this.#server.parts;
    this.#end('closed');
    const ms = randomInt(random, 0, 3) === 0 ? randomInt(random, 1, 2_000) : 0;
    if (ms > 0) await new Promise<void>((resolve) => void timers.after(ms, resolve));
    this.#server.live--;
    trace(`${name} closed`);
    if (random() < 0.05) throw new Error('closing failed');
  }

  #tell(): void {
    if (this.closedBy) this.#onLost(this.closedBy);
  }

  #error(reason: string): HostError {
    const { name } = this.#server.parts;
    return new HostError('transport', `server '${name}': ${reason}`, { reason, execution: 'uncertain' });
  }

  #end(reason: string): void {
    this.#cancelDeath?.();
    this.#cancelLiveness?.();
    const error = this.closedBy ?? this.#error(reason);
    this.closedBy = error;
    for (const owed of [...this.#owed]) owed.fail(error);
  }

  #owe(nonce: string, { deadlineAtMs, signal }: CallOptions): Promise<Answer> {
    const { name, clock, timers, random } = this.#server.parts;
    const fate = this.#fate();
    return new Promise((resolve, reject) => {
      const cancels: Cancel[] = [];
      const settle = (run: () => void) => {
        if (!this.#owed.delete(owed)) return;
        for (const cancel of cancels) cancel();
        signal?.removeEventListener('abort', onAbort);
        run();
      };
      const giveUp = (code: ErrorCode) =>
        settle(() => reject(givenUp(name, written, code, 'it was given up', !owed.isSent)));
      const owed: Owed = {
        isSent: false,
        fail: (error) => settle(() => reject(lost(name, error, owed.isSent ? written : undefined))),
      };
      const onAbort = () => giveUp('cancelled');
      const send = () => {
        owed.isSent = true;
        const executeMs = randomInt(random, 0, 2) === 0 ? randomInt(random, 1, 30) : 0;
        const answerMs = executeMs + (fate === 'late' ? deadlineAtMs - clock.nowMs() + 1 : randomInt(random, 0, 20));
        // A written call is executed even without a waiting caller, unless the server has ended.
        if (fate !== 'refuses' && (fate !== 'hang' || random() < 0.5))
          this.#soon(executeMs, () => this.#execute(nonce));
        if (fate === 'crash_sent') this.#soon(randomInt(random, 0, 40), () => this.die('exit'));
        else if (fate !== 'hang')
          cancels.push(this.#soon(answerMs, () => settle(() => resolve(this.#answer(fate, nonce)))));
      };
      this.#owed.add(owed);
      cancels.push(timers.after(deadlineAtMs - clock.nowMs(), () => giveUp('timeout')));
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#watch();
      if (fate === 'crash_unsent') this.#soon(randomInt(random, 0, 5), () => this.die('exit'));
      else if (random() < 0.2) cancels.push(timers.after(randomInt(random, 1, 30), send));
      else send();
    });
  }

  #answer(fate: Fate, nonce: string): Answer {
    this.#heard();
    return answerOf(fate, nonce);
  }

  #heard(): void {
    this.lastMessageAtMs = this.#server.parts.clock.nowMs();
  }

  #fate(): Fate {
    const { faults, faultRate, parts } = this.#server;
    if (this.#isWedged) return 'hang';
    if (parts.random() >= faultRate) return 'answer';
    return faults[randomInt(parts.random, 0, faults.length - 1)] ?? 'answer';
  }

  #execute(nonce: string): void {
    if (this.closedBy && !this.#server.parts.isRemote) return;
    this.#server.execute(nonce);
  }

  /** A silent server with unanswered requests is declared dead in the end. */
  #watch(): void {
    if (this.#isWedged)
      this.#cancelLiveness ??= this.#server.parts.timers.after(45_000, () => this.die('unresponsive'));
  }

  #soon(ms: number, run: () => void): Cancel {
    if (ms > 0) return this.#server.parts.timers.after(ms, run);
    run();
    return () => {};
  }
}

function answerOf(fate: Fate, nonce: string): Answer {
  if (fate === 'refuses') return { kind: 'error', bytes: Buffer.from('{"code":-32602,"message":"no"}'), mayHold: 0 };
  const more = `${fate === 'rejects' ? ',"isError":true' : ''}${nonce.startsWith('shared') ? ',"ttlMs":5000' : ''}`;
  const bytes = Buffer.from(`{"content":[{"type":"text","text":"${nonce}"}]${more}}`);
  return { kind: 'result', bytes, mayHold: MAY_HOLD_ERROR + MAY_HOLD_TTL };
}
