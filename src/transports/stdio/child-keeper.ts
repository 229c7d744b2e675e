/**
 * All children of one Hostler: starts them, writes each down before anything else can happen, and takes them all down
 * at the end. Joins the journal, the death watch and the search for escaped processes; make one per Hostler.
 * Not here: restarting (supervisor), what children say (stdio-channel.ts).
 * Invariant: a child is on the death watch's list and in the journal until its group is gone: announced by its run before
 * it exists, by its number from the tick it was started in.
 */
import type { ChildProcess } from 'node:child_process';
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { type Environment, runMark } from '../environment.js';
import { abortChild, Child, type ChildRequest, spawnChild } from './child.js';
import { DeathWatch } from './death-watch.js';
import { EscapedProcesses } from './escaped-processes.js';
import { Escapees, type LostRun } from './escapees.js';
import { PidJournal } from './pid-journal.js';
import type { GroupLeader } from './process-group.js';
import type { ProcessFacts, ProcessTable } from './process-table.js';
import { NOTHING_REAPED, type ReapReport, reap } from './reaper.js';
import { type SandboxPlaces, sandboxPlaces } from './sandbox/places.js';
import { spawnError } from './spawn-error.js';
import type { LadderPace } from './stop-ladder.js';
import { systemTable } from './system-table.js';

interface ChildKeeperOptions {
  readonly clock: Clock;
  /** Where the journal lies. Without it, only the death watch guards against our own sudden end. */
  readonly stateDir?: string;
  /** Our own environment, from which children get their baseline. */
  readonly ambient: Environment;
  /** What sandboxed servers never see, beside the state directory and the default folders of Hostler. */
  readonly hiddenPaths?: readonly string[];
  /** Whether homes of sandboxed servers are kept in the state directory. True when absent. */
  readonly keepsHomes?: boolean;
  readonly instanceId?: string;
  /** The journal could not be written, or an old one not be used: children run, but a crash may leave some behind. */
  readonly onProblem?: (error: unknown) => void;
  readonly table?: ProcessTable;
  /** This process is PID 1, as in a container without an init. */
  readonly isInit?: boolean;
}

export class ChildKeeper {
  readonly instanceId: string;
  readonly ambient: Environment;
  readonly places: SandboxPlaces;
  readonly #clock: Clock;
  readonly #table: ProcessTable;
  readonly #stateDir: string | undefined;
  readonly #onProblem: (error: unknown) => void;
  #journal: PidJournal | undefined;
  readonly #watch: DeathWatch;
  readonly #escapees: Escapees;
  readonly #escaped: EscapedProcesses;
  readonly #live = new Set<Child>();
  #runs = 0;
  /** Not reported yet that nothing reaps the orphans of children. */
  #isUnreaped: boolean;
  #closing: Promise<void> | undefined;

  constructor(options: ChildKeeperOptions) {
    this.instanceId = options.instanceId ?? newId();
    this.ambient = options.ambient;
    const { ambient, stateDir, hiddenPaths = [], keepsHomes = true } = options;
    this.places = sandboxPlaces({ ambient, stateDir, hiddenPaths, keepsHomes });
    this.#clock = options.clock;
    this.#table = options.table ?? systemTable;
    this.#stateDir = options.stateDir;
    this.#isUnreaped = options.isInit ?? process.pid === 1;
    this.#onProblem = options.onProblem ?? (() => {});
    this.#journal =
      options.stateDir === undefined
        ? undefined
        : new PidJournal(options.stateDir, this.instanceId, this.#table, this.#onProblem);
    this.#watch = new DeathWatch(options.clock, this.instanceId);
    this.#escapees = new Escapees(this.#table);
    this.#escaped = new EscapedProcesses(this.#table);
  }

  get liveChildren(): number {
    return this.#live.size;
  }

  /** Processes that left the group of this server, were found when it was stopped, and still run. */
  escapedOf(server: string): number {
    return this.#escaped.countOf(server);
  }

  /** Pid of the death watch, when there is one. */
  get watchPid(): number | undefined {
    return this.#watch.pid;
  }

  /** Takes down what a Hostler that was killed left behind. Once, before the first start. What hinders it is a problem to report, not a reason not to start. */
  async reapLeftovers(): Promise<ReapReport> {
    if (this.#stateDir === undefined) return NOTHING_REAPED;
    try {
      return await reap(this.#stateDir, { clock: this.#clock, table: this.#table, onProblem: this.#onProblem });
    } catch (error) {
      this.#onProblem(error);
      // The directory cannot be trusted: that is said once, and it is not written to either.
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
    if (this.#isUnreaped) {
      this.#isUnreaped = false;
      this.#onProblem(unreaped());
    }
    // Our death in the middle of this would leave a child behind that is written down nowhere.
    this.#watch.expect(run);
    this.#journal?.starting({ run, server: request.server });
    try {
      const spawned = spawnChild(request);
      const handle = spawned instanceof Promise ? await spawned : spawned;
      // No await, and nothing slow, between the spawn and the death watch: until then our death would leave the child behind.
      return this.#keep(handle, request, run, mark);
    } catch (error) {
      this.#journal?.notStarted(run);
      throw error;
    } finally {
      this.#watch.expected(run);
    }
  }

  /** The death watch first, then the journal, then everything else. */
  #keep(handle: ChildProcess, request: ChildRequest, run: number, mark: string): Child {
    let leader: GroupLeader | undefined;
    try {
      if (handle.pid !== undefined) {
        // The child cannot have been reaped yet, so its entry is there even when it is dead already.
        leader = { pid: handle.pid, startTicks: this.#table.startOf(handle.pid) };
        this.#watch.add(leader);
        this.#journal?.started({ ...leader, run });
      }
      const child = this.#adopt(handle, request, run, mark, leader?.startTicks ?? 0);
      this.#live.add(child);
      return child;
    } catch (error) {
      abortChild(handle);
      if (leader) {
        this.#watch.remove(leader);
        this.#journal?.ended({ ...leader, run });
      }
      throw isHostError(error) ? error : spawnError(request.server, request.file, error);
    }
  }

  /** Stops every child at once and lets nothing start any more. Resolves when nothing of this Hostler runs. */
  closeAll(pace?: LadderPace): Promise<void> {
    this.#closing ??= this.#closeAll(pace);
    return this.#closing;
  }

  async #closeAll(pace: LadderPace | undefined): Promise<void> {
    await Promise.all([...this.#live].map((child) => child.stop(pace)));
    this.#journal?.close();
    await this.#watch.close();
  }

  #adopt(handle: ChildProcess, request: ChildRequest, run: number, mark: string, startTicks: number): Child {
    let descendants: readonly ProcessFacts[] = [];
    return new Child(handle, request, {
      startTicks,
      clock: this.#clock,
      table: this.#table,
      stopping: (leader) => {
        descendants = this.#escapees.descendants(leader.pid);
      },
      stopped: (leader, left) => this.#stopped({ leader, mark, descendants }, request.server, leader, left, run),
    });
  }

  async #stopped(lost: LostRun, server: string, child: Child, left: number, run: number): Promise<readonly number[]> {
    const escaped = await this.#escapees.find(lost);
    this.#escaped.add(server, escaped);
    this.#live.delete(child);
    // What outlived SIGKILL stays written down: our end, or the next start, tries again.
    if (left > 0) return escaped;
    this.#watch.remove(child);
    this.#journal?.ended({ pid: child.pid, startTicks: child.startTicks, run });
    return escaped;
  }
}

const shuttingDown = (server: string) =>
  new HostError('connect_failed', `server '${server}' was not started: Hostler is shutting down`, {
    server,
    reason: 'shutting_down',
    execution: 'not_executed',
  });

const unreaped = () =>
  new HostError('invalid_spec', 'this process is PID 1, and Node does not reap orphans: they stay as zombies', {
    reason: 'pid_1',
    hint: 'run it under an init, such as docker run --init, or start the hostler command itself',
  });
