/**
 * One running child process: its three streams, its exit, and the stop ladder for its process group.
 * Not here: choosing the program (command.ts, sandbox/sandbox.ts), the set of children (child-processes.ts), output
 * (stdio-channel.ts).
 * Invariants:
 * - The child has ended at its `exit` event. `close` would wait for every process that has the pipe open, even a grandchild.
 * - After every exit the group is stopped. `stop` resolves when the group is empty, or reports how many members are left.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { type Cancel, type Clock, keepAlive } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { EscapedProcesses } from './escaped-processes.js';
import { inheritedDescriptors } from './inherited-descriptors.js';
import {
  DEFAULT_PACE,
  type Ladder,
  type LadderEffect,
  type LadderPace,
  ProcessGroup,
  type Rung,
  shortenWaits,
  step,
} from './process-group.js';
import type { ProcessFacts, ProcessTable } from './process-table.js';

export interface ChildRequest {
  readonly server: string;
  /** Absolute path, used without PATH search and without a shell. */
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Record<string, string>;
  /** True: the leader is a sandbox whose death kills all processes inside. SIGTERM is sent to these processes first. */
  readonly leaderIsSandbox: boolean;
}

interface ChildDeps {
  /** Start time of the child, read right after the spawn, before it can have been reaped. */
  readonly startTicks: number;
  readonly clock: Clock;
  readonly table: ProcessTable;
  readonly escaped: EscapedProcesses;
  readonly mark: string;
  /** The stop has ended; `left` members of the group survived. */
  readonly onStopped: (child: Child, left: number) => void;
}

export interface ChildExit {
  readonly exitCode: number | undefined;
  readonly signal: string | undefined;
  readonly atMs: number;
}

export interface StopReport extends Omit<ChildExit, 'atMs'> {
  readonly rung: Rung;
  /** Number of group members that survived SIGKILL. */
  readonly left: number;
  /** Number of known processes that left the group and still run (escaped-processes.ts). They are not signalled. */
  readonly escaped: number;
  readonly escapedPids: readonly number[];
}

const pollFirstMs = 2;
const pollMaxMs = 50;

/** Returns the process in the same tick if it started, so that the caller can register it at once. */
export function spawnChild(request: ChildRequest): ChildProcess | Promise<never> {
  const { server, file, args, cwd, env } = request;
  let handle: ChildProcess;
  const closed = request.leaderIsSandbox ? closedDescriptors() : undefined;
  try {
    handle = spawn(file, args, {
      cwd,
      env,
      stdio: ['pipe', 'pipe', 'pipe', ...(closed?.stdio ?? [])],
      // New session and group: group signals reach its children too, and signals to the group of Hostler do not reach it.
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
 * Inherited descriptors may be sockets or open files of other programs. The hostler command closes them
 * (inherited-descriptors.ts). Inside the process of an embedder, a sandboxed child gets /dev/null in their place.
 */
function closedDescriptors(): { readonly stdio: (number | 'ignore')[]; readonly release: () => void } | undefined {
  // Read once, because descriptors that Node opens later are close-on-exec.
  inherited ??= inheritedDescriptors();
  if (inherited.length === 0) return undefined;
  const nothing = openSync('/dev/null', 'r');
  const stdio = Array.from({ length: Math.max(...inherited) - 2 }, (_, i) =>
    inherited?.includes(i + 3) ? nothing : 'ignore',
  );
  return { stdio, release: () => closeSync(nothing) };
}

let inherited: readonly number[] | undefined;

export function abortChild(handle: ChildProcess): void {
  for (const stream of [handle.stdin, handle.stdout, handle.stderr]) stream?.on('error', () => {}).destroy();
  handle.on('error', () => {});
  try {
    // The child cannot have been reaped yet, so its pid cannot have been reused.
    if (handle.pid !== undefined) process.kill(-handle.pid, 'SIGKILL');
  } catch {}
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
  #descendants: readonly ProcessFacts[] = [];
  #resolveStopped: (report: StopReport) => void = () => {};

  /** Does not read the process table, because that would delay the start of a server. */
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
    // Failed writes report a broken pipe. Without a listener, an `error` event would end this process.
    for (const stream of [stdin, stdout, stderr]) stream.on('error', () => {});
    handle.on('error', () => {});
    handle.once('exit', (code, signal) => this.#exited(code, signal));
  }

  get exit(): ChildExit | undefined {
    return this.#exit;
  }

  /** Undefined until the group has ended. */
  get report(): StopReport | undefined {
    return this.#report;
  }

  /** Called once, at the `exit` event. The pipes may still contain output of the child. */
  onExit(listener: (exit: ChildExit) => void): void {
    if (this.#exit) listener(this.#exit);
    else this.#onExit.push(listener);
  }

  /** Runs the stop ladder. May be called again; a shorter pace shortens the waits. */
  stop(pace?: LadderPace): Promise<StopReport> {
    if (pace) {
      this.#pace = pace;
      this.#ladder = shortenWaits(this.#ladder, this.#deps.clock.nowMs(), pace);
    }
    if (!this.#stopped) {
      this.#stopped = new Promise((resolve) => {
        this.#resolveStopped = resolve;
      });
      void this.#stopped.then(keepAlive());
      if (!this.#exit) this.#descendants = this.#deps.escaped.descendants(this.pid);
    }
    this.#advance();
    return this.#stopped;
  }

  #exited(code: number | null, signal: string | null): void {
    const exit = { exitCode: code ?? undefined, signal: signal ?? undefined, atMs: this.#deps.clock.nowMs() };
    this.#exit = exit;
    for (const listener of this.#onExit.splice(0)) listener(exit);
    void this.stop();
  }

  #advance(): void {
    this.#wake();
    if (this.#ladder.kind === 'done') return;
    const { clock } = this.#deps;
    const leader = this.#exit === undefined;
    // While the leader lives, the group is not empty, and a walk through the process table is not needed.
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
      this.#wake = clock.at(Math.min(ladder.untilMs, pollAtMs), () => this.#advance());
    }
  }

  #perform(effect: LadderEffect): void {
    if (effect === 'close_stdin') return this.#closeStdin();
    if (effect === 'kill') {
      this.#group.signal('SIGKILL');
      return;
    }
    if (!this.#request.leaderIsSandbox || !this.#group.signalFollowers('SIGTERM')) this.#group.signal('SIGTERM');
    // A stopped process handles SIGTERM only after SIGCONT.
    this.#group.signal('SIGCONT');
  }

  #closeStdin(): void {
    // Unread bytes would delay the end of file.
    if (this.stdin.writableLength === 0) this.stdin.end();
    else this.stdin.destroy();
  }

  async #finish(rung: Rung, left: number): Promise<void> {
    const { escaped, mark, onStopped } = this.#deps;
    const { server } = this.#request;
    const escapedPids = await escaped.find({ server, leader: this, mark, descendants: this.#descendants });
    onStopped(this, left);
    const { exitCode, signal } = this.#exit ?? {};
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

const SPAWN_HINTS: Readonly<Record<string, string>> = {
  ENOENT: 'the file exists, but the interpreter in its first line does not: install it or correct the line',
  EACCES: 'make the file executable, and check that its file system is not mounted "noexec"',
  ENOEXEC:
    'the file is not a program for this machine, or a script without a "#!" line: start it through its interpreter',
  E2BIG: 'arguments and environment together are too large: pass a file instead',
  EAGAIN: 'the process limit is reached (ulimit -u, or the pids limit of the container): stop processes or raise it',
  EMFILE: 'too many files are open in Hostler: raise "ulimit -n", or run fewer servers at a time',
  ENFILE: 'the whole system has too many files open: raise fs.file-max, or stop processes',
  ENOMEM: 'the system is out of memory: stop processes, or add memory',
  ERR_INVALID_ARG_VALUE: 'command, arguments and environment may not contain NUL characters',
};

export function spawnError(server: string, command: string, cause: unknown): HostError {
  const { code } = cause as NodeJS.ErrnoException;
  const reason = typeof code === 'string' ? code : 'spawn';
  const hint = SPAWN_HINTS[reason];
  return new HostError('connect_failed', `server '${server}': "${command}" could not be started (${reason})`, {
    server,
    reason,
    execution: 'not_executed',
    cause,
    ...(hint === undefined ? {} : { hint }),
  });
}
