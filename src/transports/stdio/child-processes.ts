/**
 * All child processes of one Hostler: starts them, records each in the death watch and the journal, and stops all at the end.
 * Create one per Hostler.
 * Not here: restarting (supervisor), the output of children (stdio-channel.ts).
 * Invariant: a child is registered with the death watch and in the journal until its group is empty: by its run before it
 * exists, by its pid from the tick in which it was started.
 */
import type { ChildProcess } from 'node:child_process';
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { type Environment, runMark } from '../environment.js';
import { abortChild, Child, type ChildRequest, spawnChild, spawnError } from './child.js';
import { DeathWatch } from './death-watch.js';
import { EscapedProcesses } from './escaped-processes.js';
import { PidJournal } from './pid-journal.js';
import type { GroupLeader } from './process-group.js';
import { type ProcessTable, systemTable } from './process-table.js';
import { NOTHING_REAPED, type ReapReport, reap } from './reaper.js';
import { type HostPaths, hostPaths } from './sandbox/host-paths.js';
import type { LadderPace } from './stop-ladder.js';

interface ChildProcessesOptions {
  readonly clock: Clock;
  /** Directory of the journal. Without it, only the death watch cleans up after a sudden end of Hostler. */
  readonly stateDir?: string;
  /** Hostler's own environment, from which children get their baseline. */
  readonly ambient: Environment;
  /** Paths that sandboxed servers never see, beside the state directory and the default folders of Hostler. */
  readonly hiddenPaths?: readonly string[];
  /** Whether homes of sandboxed servers are stored in the state directory. True when absent. */
  readonly keepsHomes?: boolean;
  readonly instanceId?: string;
  /** The journal could not be written, or an old one could not be used: children run, but a crash may leave some behind. */
  readonly onProblem?: (error: unknown) => void;
  readonly table?: ProcessTable;
  /** This process is PID 1, as in a container without an init. */
  readonly isInit?: boolean;
}

export class ChildProcesses {
  readonly instanceId: string;
  readonly ambient: Environment;
  readonly hostPaths: HostPaths;
  readonly #clock: Clock;
  readonly #table: ProcessTable;
  readonly #stateDir: string | undefined;
  readonly #onProblem: (error: unknown) => void;
  #journal: PidJournal | undefined;
  readonly #watch: DeathWatch;
  readonly #escaped: EscapedProcesses;
  readonly #live = new Set<Child>();
  #runs = 0;
  /** This process is PID 1, and the problem was not reported yet. */
  #mustWarnAsInit: boolean;
  #closing: Promise<void> | undefined;

  constructor(options: ChildProcessesOptions) {
    this.instanceId = options.instanceId ?? newId();
    this.ambient = options.ambient;
    this.hostPaths = hostPaths(options.ambient, options.stateDir, options.hiddenPaths ?? [], options.keepsHomes);
    this.#clock = options.clock;
    this.#table = options.table ?? systemTable;
    this.#stateDir = options.stateDir;
    this.#mustWarnAsInit = options.isInit ?? process.pid === 1;
    this.#onProblem = options.onProblem ?? (() => {});
    if (options.stateDir !== undefined)
      this.#journal = new PidJournal(options.stateDir, this.instanceId, this.#table, this.#onProblem);
    this.#watch = new DeathWatch(options.clock, this.instanceId);
    this.#escaped = new EscapedProcesses(this.#table);
  }

  get liveChildren(): number {
    return this.#live.size;
  }

  /** Processes that left the group of this server and still run. */
  escapedOf(server: string): number {
    return this.#escaped.countOf(server);
  }

  /** Pid of the death watch, while it runs. */
  get watchPid(): number | undefined {
    return this.#watch.pid;
  }

  /** Ends the children of a Hostler that was killed. Once, before the first start. A failure is reported and does not prevent starts. */
  async reapLeftovers(): Promise<ReapReport> {
    if (this.#stateDir === undefined) return NOTHING_REAPED;
    try {
      return await reap(this.#stateDir, { clock: this.#clock, table: this.#table, onProblem: this.#onProblem });
    } catch (error) {
      this.#onProblem(error);
      // The directory cannot be trusted: reported once, and no journal is written to it.
      if (isHostError(error)) this.#journal = undefined;
      return NOTHING_REAPED;
    }
  }

  /** `prepare` gets the mark of this run, for the child's environment. */
  async start(prepare: (mark: string) => Promise<ChildRequest>): Promise<Child> {
    const run = ++this.#runs;
    const mark = runMark(this.instanceId, run);
    const request = await prepare(mark);
    if (this.#closing !== undefined) throw shuttingDown(request.server);
    if (this.#mustWarnAsInit) {
      this.#mustWarnAsInit = false;
      this.#onProblem(orphansNotReaped());
    }
    // Announced first: a child whose start is interrupted by our death would be recorded nowhere.
    this.#watch.expect(run);
    this.#journal?.starting({ run, server: request.server });
    try {
      const spawned = spawnChild(request);
      const handle = spawned instanceof Promise ? await spawned : spawned;
      // No await, and nothing slow, between the spawn and the death watch: until then our death would leave the child behind.
      return this.#register(handle, request, run, mark);
    } catch (error) {
      this.#journal?.notStarted(run);
      throw error;
    } finally {
      this.#watch.expected(run);
    }
  }

  /** The death watch first, then the journal, then everything else. */
  #register(handle: ChildProcess, request: ChildRequest, run: number, mark: string): Child {
    let leader: GroupLeader | undefined;
    try {
      if (handle.pid !== undefined) {
        // The child cannot have been reaped yet, so the process table still has its entry.
        leader = { pid: handle.pid, startTicks: this.#table.startOf(handle.pid) };
        this.#watch.add(leader);
        this.#journal?.started({ ...leader, run });
      }
      const startTicks = leader?.startTicks ?? 0;
      const child = new Child(handle, request, {
        ...{ startTicks, mark, clock: this.#clock, table: this.#table, escaped: this.#escaped },
        onStopped: (stopped, left) => {
          this.#live.delete(stopped);
          // A child that outlived SIGKILL stays recorded: our end, or the next start, tries again.
          if (left === 0) this.#forget(stopped, run);
        },
      });
      this.#live.add(child);
      return child;
    } catch (error) {
      abortChild(handle);
      if (leader) this.#forget(leader, run);
      throw isHostError(error) ? error : spawnError(request.server, request.file, error);
    }
  }

  #forget({ pid, startTicks }: GroupLeader, run: number): void {
    this.#watch.remove({ pid, startTicks });
    this.#journal?.ended({ pid, startTicks, run });
  }

  /** Stops every child at once and lets no other start. Resolves when no process of this Hostler runs. */
  closeAll(pace?: LadderPace): Promise<void> {
    this.#closing ??= this.#closeAll(pace);
    return this.#closing;
  }

  async #closeAll(pace: LadderPace | undefined): Promise<void> {
    await Promise.all([...this.#live].map((child) => child.stop(pace)));
    this.#journal?.close();
    await this.#watch.close();
  }
}

const shuttingDown = (server: string) =>
  new HostError('connect_failed', `server '${server}' was not started: Hostler is shutting down`, {
    server,
    reason: 'shutting_down',
    execution: 'not_executed',
  });

const orphansNotReaped = () =>
  new HostError('invalid_spec', 'this process is PID 1, and Node does not reap orphans: they stay as zombies', {
    reason: 'pid_1',
    hint: 'run it under an init, such as docker run --init, or start the hostler command itself',
  });
