/**
 * One running child: its three streams, its end, and the walk down the stop ladder for its whole group.
 * Not here: what runs (command.ts, sandbox.ts), who remembers it (child-keeper.ts), what its output means (stdio-channel.ts).
 *
 * Invariants:
 * - The end is the `exit` event. `close` waits for everybody who holds a pipe, and a grandchild can hold one for ever.
 * - However the child ends, its group is taken down; `stop` resolves when nobody is left in it, or says how many are.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { keepAlive } from '../../kernel/keep-alive.js';
import { inheritedDescriptors } from './inherited-descriptors.js';
import { ProcessGroup } from './process-group.js';
import type { ProcessTable } from './process-table.js';
import { spawnError } from './spawn-error.js';
import {
  DEFAULT_PACE,
  hurry,
  type Ladder,
  type LadderEffect,
  type LadderPace,
  type Rung,
  step,
} from './stop-ladder.js';

export interface ChildRequest {
  readonly server: string;
  /** Absolute path; never looked up, never given to a shell. */
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Record<string, string>;
  /** The leader is a sandbox that takes everything with it when it dies: ask what is inside to leave first. */
  readonly leaderIsSandbox: boolean;
}

interface ChildDeps {
  /** Read right after the spawn, when the child cannot have been reaped yet. */
  readonly startTicks: number;
  readonly clock: Clock;
  readonly table: ProcessTable;
  /** The walk is about to begin, and the leader still lives. */
  readonly stopping: (child: Child) => void;
  /** The walk is over, with so many of the group left. Answers with the pids of those that had left it before. */
  readonly stopped: (child: Child, left: number) => Promise<readonly number[]>;
}

export interface ChildExit {
  readonly exitCode: number | undefined;
  readonly signal: string | undefined;
  readonly atMs: number;
}

export interface StopReport {
  readonly exitCode: number | undefined;
  readonly signal: string | undefined;
  readonly rung: Rung;
  /** Members of the group that outlived SIGKILL. */
  readonly left: number;
  /**
   * Processes that left the group and still run: found by the mark in their environment or by their descent from the
   * server when its stop began, told, and not signalled. One that wiped its environment and was no descendant any more
   * by then (a daemon, or any child of a server that ended by itself) is not among them: 0 means that none was found.
   */
  readonly escaped: number;
  readonly escapedPids: readonly number[];
}

const pollFirstMs = 2;
const pollMaxMs = 50;

/** Starts the process. Resolves or throws in the same tick when it could be started, so that it can be registered at once. */
export function spawnChild(request: ChildRequest): ChildProcess | Promise<never> {
  const { server, file, args, cwd, env } = request;
  let handle: ChildProcess;
  const closed = request.leaderIsSandbox ? closedDescriptors() : undefined;
  try {
    handle = spawn(file, args, {
      cwd,
      env,
      stdio: ['pipe', 'pipe', 'pipe', ...(closed?.stdio ?? [])],
      // A session and group of its own: signals meant for it reach its children too, and none of ours reaches it.
      detached: true,
      shell: false,
    });
  } catch (error) {
    throw spawnError(server, file, error);
  } finally {
    closed?.release();
  }
  if (handle.pid !== undefined) return handle;
  for (const stream of [handle.stdin, handle.stdout, handle.stderr]) stream?.on('error', () => {});
  return new Promise((_resolve, reject) => {
    handle.once('error', (error) => reject(spawnError(server, file, error)));
  });
}

/**
 * Descriptors that this process inherited, and would hand on, may be sockets or open files of other programs. A program closes its own
 * (inherited-descriptors.ts); inside an embedder's process a sandboxed child gets /dev/null in their place.
 */
function closedDescriptors(): { readonly stdio: (number | 'ignore')[]; readonly release: () => void } | undefined {
  // Once: what Node opens later is closed on exec by the system.
  given ??= inheritedDescriptors();
  if (given.length === 0) return undefined;
  const nothing = openSync('/dev/null', 'r');
  const stdio = Array.from({ length: Math.max(...given) - 2 }, (_, i) => (given?.includes(i + 3) ? nothing : 'ignore'));
  return { stdio, release: () => closeSync(nothing) };
}

let given: readonly number[] | undefined;

/** Ends a child that was started a moment ago and cannot be kept. */
export function abortChild(handle: ChildProcess): void {
  for (const stream of [handle.stdin, handle.stdout, handle.stderr]) stream?.on('error', () => {}).destroy();
  handle.on('error', () => {});
  try {
    // Not reaped yet, so the number is still its own, and that of its group.
    if (handle.pid !== undefined) process.kill(-handle.pid, 'SIGKILL');
  } catch {
    // Gone already.
  }
}

export class Child {
  readonly pid: number;
  readonly startTicks: number;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly #request: ChildRequest;
  readonly #deps: ChildDeps;
  readonly #group: ProcessGroup;
  readonly #onExit: Array<(exit: ChildExit) => void> = [];
  #exit: ChildExit | undefined;
  #ladder: Ladder = { kind: 'standing' };
  #pace: LadderPace = DEFAULT_PACE;
  #pollMs = pollFirstMs;
  #wake: Cancel = () => {};
  #stopped: Promise<StopReport> | undefined;
  #report: StopReport | undefined;
  #resolveStopped: (report: StopReport) => void = () => {};

  /** Does not look at the process table: the start of a server must not wait for it. */
  constructor(handle: ChildProcess, request: ChildRequest, deps: ChildDeps) {
    const { pid, stdin, stdout, stderr } = handle;
    if (pid === undefined || !stdin || !stdout || !stderr) throw withoutPipes(request.server);
    this.pid = pid;
    this.stdin = stdin;
    this.stdout = stdout;
    this.stderr = stderr;
    this.#request = request;
    this.#deps = deps;
    this.startTicks = deps.startTicks;
    this.#group = new ProcessGroup({ pid, startTicks: this.startTicks }, deps.table);
    // A broken pipe shows in the write that met it; unheard, the event would end our process.
    for (const stream of [stdin, stdout, stderr]) stream.on('error', () => {});
    handle.on('error', () => {});
    handle.once('exit', (code, signal) => this.#exited(code, signal));
  }

  get exit(): ChildExit | undefined {
    return this.#exit;
  }

  /** Known once the group is gone. */
  get report(): StopReport | undefined {
    return this.#report;
  }

  /** Called once, at the `exit` event; output of the child may still be in the pipes. */
  onExit(listener: (exit: ChildExit) => void): void {
    if (this.#exit) listener(this.#exit);
    else this.#onExit.push(listener);
  }

  /** Walks down the ladder. Safe to call again; a less patient pace hurries the walk. */
  stop(pace?: LadderPace): Promise<StopReport> {
    if (pace) {
      this.#pace = pace;
      this.#ladder = hurry(this.#ladder, this.#deps.clock.nowMs(), pace);
    }
    if (!this.#stopped) {
      this.#stopped = new Promise((resolve) => {
        this.#resolveStopped = resolve;
      });
      // A process that is about to end must not end in the middle of this.
      void this.#stopped.then(keepAlive());
      if (!this.#exit) this.#deps.stopping(this);
    }
    this.#look();
    return this.#stopped;
  }

  #exited(code: number | null, signal: string | null): void {
    const exit = { exitCode: code ?? undefined, signal: signal ?? undefined, atMs: this.#deps.clock.nowMs() };
    this.#exit = exit;
    for (const listener of this.#onExit.splice(0)) listener(exit);
    void this.stop();
  }

  #look(): void {
    this.#wake();
    if (this.#ladder.kind === 'done') return;
    const { clock } = this.#deps;
    const leader = this.#exit === undefined;
    // While the leader lives the group is not empty, and walking the process table can wait.
    const followers = leader ? 0 : this.#group.count();
    const [ladder, effects] = step(this.#ladder, { leader, followers }, clock.nowMs(), this.#pace);
    this.#ladder = ladder;
    for (const effect of effects) this.#perform(effect);
    if (ladder.kind === 'done') {
      void this.#finish(ladder.rung, ladder.left);
    } else if (ladder.kind === 'walking') {
      if (effects.length > 0) this.#pollMs = pollFirstMs;
      const pollAtMs = leader ? Number.POSITIVE_INFINITY : clock.nowMs() + this.#pollMs;
      this.#pollMs = Math.min(this.#pollMs * 2, pollMaxMs);
      this.#wake = clock.at(Math.min(ladder.untilMs, pollAtMs), () => this.#look());
    }
  }

  #perform(effect: LadderEffect): void {
    if (effect === 'close_stdin') return this.#closeStdin();
    if (effect === 'kill') {
      this.#group.signal('SIGKILL');
      return;
    }
    if (!this.#request.leaderIsSandbox || !this.#group.signalFollowers('SIGTERM')) this.#group.signal('SIGTERM');
    // A stopped process would keep the SIGTERM for later: wake it, after it has the signal.
    this.#group.signal('SIGCONT');
  }

  #closeStdin(): void {
    // Bytes the child does not read would hold back the end of file behind them.
    if (this.stdin.writableLength === 0) this.stdin.end();
    else this.stdin.destroy();
  }

  async #finish(rung: Rung, left: number): Promise<void> {
    const escapedPids = await this.#deps.stopped(this, left);
    const exitCode = this.#exit?.exitCode;
    const signal = this.#exit?.signal;
    this.#report = { exitCode, signal, rung, left, escaped: escapedPids.length, escapedPids };
    this.#resolveStopped(this.#report);
  }
}

const withoutPipes = (server: string) =>
  new HostError('connect_failed', `server '${server}' was started without a pid or without its three pipes`, {
    server,
    reason: 'no_pipes',
    execution: 'not_executed',
  });
