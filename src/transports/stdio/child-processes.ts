/**
 * All child processes of one Hostler: starts them, registers them with the death watch and the journal, and stops them.
 * Not here: restarting (supervisor/), the output of children (stdio-channel.ts).
 * Invariant: the death watch and the journal list a child until its group is empty. They have its run number before the spawn,
 * and its pid in the same tick as the spawn.
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
import type { GroupLeader, LadderPace } from './process-group.js';
import { type ProcessTable, systemTable } from './process-table.js';
import { NOTHING_REAPED, type ReapReport, reap } from './reaper.js';
import { type HostPaths, hostPaths } from './sandbox/host-paths.js';

interface ChildProcessesOptions {
  readonly clock: Clock;
  /** Directory of the journal. Without it, only the death watch cleans up after a crash of Hostler. */
  readonly stateDir?: string;
  /** Environment of Hostler. Children get their baseline from it. */
  readonly ambient: Environment;
  /** Paths hidden from sandboxed servers, in addition to the state directory and the default folders of Hostler. */
  readonly hiddenPaths?: readonly string[];
  /** Whether homes of sandboxed servers are stored in the state directory. Default: true. */
  readonly keepsHomes?: boolean;
  readonly instanceId?: string;
  /** Reports a journal that cannot be written or read. Children still run, but may survive a crash. */
  readonly onProblem?: (error: unknown) => void;
  readonly table?: ProcessTable;
  /** True: this process is PID 1, as in a container without an init. */
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
  /** True: this process is PID 1, and this has not been reported. */
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

  /** Number of processes that left the group of this server and still run. */
  escapedOf(server: string): number {
    return this.#escaped.countOf(server);
  }

  get watchPid(): number | undefined {
    return this.#watch.pid;
  }

  /** Ends the children of a killed Hostler. Called once, before the first start. A failure does not prevent starts. */
  async reapLeftovers(): Promise<ReapReport> {
    if (this.#stateDir === undefined) return NOTHING_REAPED;
    try {
      return await reap(this.#stateDir, { clock: this.#clock, table: this.#table, onProblem: this.#onProblem });
    } catch (error) {
      this.#onProblem(error);
      // The directory cannot be trusted, so no journal is written to it.
      if (isHostError(error)) this.#journal = undefined;
      return NOTHING_REAPED;
    }
  }

  /** `prepare` gets the run marker for the environment of the child. */
  async start(prepare: (mark: string) => Promise<ChildRequest>): Promise<Child> {
    const run = ++this.#runs;
    const mark = runMark(this.instanceId, run);
    const request = await prepare(mark);
    if (this.#closing !== undefined) throw shuttingDown(request.server);
    if (this.#mustWarnAsInit) {
      this.#mustWarnAsInit = false;
      this.#onProblem(orphansNotReaped());
    }
    // The announcement comes first. Otherwise no record would exist of a child if Hostler is killed during the spawn.
    this.#watch.expect(run);
    this.#journal?.starting({ run, server: request.server });
    try {
      const spawned = spawnChild(request);
      const handle = spawned instanceof Promise ? await spawned : spawned;
      // No await and no slow work between the spawn and the death watch: if Hostler is killed here, the child survives.
      return this.#register(handle, request, run, mark);
    } catch (error) {
      this.#journal?.notStarted(run);
      throw error;
    } finally {
      this.#watch.stopExpecting(run);
    }
  }

  /** Order: the death watch first, then the journal, then everything else. */
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
          // A child that survived SIGKILL stays registered: the death watch or the next start tries again.
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

  /** Stops all children and refuses new starts. Resolves when no child process of this Hostler runs. */
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
  new HostError('invalid_spec', 'this process is PID 1, and Node does not reap orphans: they remain as zombies', {
    reason: 'pid_1',
    hint: 'run it under an init, such as docker run --init, or start the hostler command itself',
  });
