/**
 * Processes that left the process group of their server (setsid, daemons), so group signals do not reach them. They are counted
 * and reported, never signalled: a process may leave the group on purpose.
 * Two signs identify them: the run marker in the environment, and descent from the leader when its stop began. After a server
 * exits by itself, its descendants can no longer be found by parent pid; only the marker identifies them. A process that shows
 * neither sign is not found; only the sandbox profile contains it.
 * Invariant: a process is counted only while it runs. Its start time is compared, so a reused pid is not counted.
 * Concurrent lookups share one walk through the process table: fifty servers may stop at once; each walk reads hundreds of
 * files.
 */
import type { GroupLeader } from './process-group.js';
import { isDead, isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';

interface StoppedRun {
  readonly server: string;
  readonly leader: GroupLeader;
  readonly mark: string;
  readonly descendants: readonly ProcessFacts[];
}

/** Children by parent pid. */
type Family = ReadonlyMap<number, readonly ProcessFacts[]>;

/** Maximum number of processes stored per server; beyond it the oldest is dropped. */
const perServerMax = 256;

export class EscapedProcesses {
  readonly #table: ProcessTable;
  #searches: (StoppedRun & { readonly resolve: (pids: number[]) => void })[] = [];
  #family: Family | undefined;
  /** Contains only servers with at least one escaped process. */
  readonly #byServer = new Map<string, readonly ProcessFacts[]>();

  constructor(table: ProcessTable) {
    this.#table = table;
  }

  /** Returns the current descendants. Call it before the process is stopped: afterwards its children have another parent. */
  descendants(pid: number): ProcessFacts[] {
    if (!this.#family) {
      this.#family = familyOf(this.#living());
      setImmediate(() => {
        this.#family = undefined;
      });
    }
    return descendantsOf([pid], this.#family);
  }

  /** Finds and stores the processes of the run outside its group. Call it when the group is empty. */
  find(run: StoppedRun): Promise<number[]> {
    return new Promise((resolve) => {
      this.#searches.push({ ...run, resolve });
      if (this.#searches.length === 1) setImmediate(() => this.#walk());
    });
  }

  countOf(server: string): number {
    return this.#store(server, []);
  }

  #walk(): void {
    const searches = this.#searches;
    this.#searches = [];
    const living = this.#living();
    const byPid = new Map(living.map((facts) => [facts.pid, facts]));
    const family = familyOf(living);
    const sinceTicks = Math.min(...searches.map(({ leader }) => leader.startTicks)) - this.#table.startSlack;
    const marked = this.#byMark(living, sinceTicks);
    for (const { server, leader, mark, descendants, resolve } of searches) {
      const alive = descendants.filter(({ pid, startTicks }) => {
        const now = byPid.get(pid);
        return now !== undefined && isSameStart(this.#table, now.startTicks, startTicks);
      });
      const pids = pidsOf(alive);
      const found = [...pids, ...pidsOf(descendantsOf(pids, family)), ...(marked.get(mark) ?? [])];
      const outside = new Set(found.filter((pid) => byPid.get(pid)?.pgid !== leader.pid));
      const escaped = [...outside].sort((one, other) => one - other);
      this.#store(
        server,
        escaped.map((pid) => byPid.get(pid) as ProcessFacts),
      );
      resolve(escaped);
    }
  }

  #byMark(living: readonly ProcessFacts[], sinceTicks: number): Map<string, number[]> {
    const found = new Map<string, number[]>();
    for (const { pid, startTicks } of living) {
      if (startTicks < sinceTicks) continue;
      const mark = this.#table.mark(pid);
      if (mark !== undefined) found.set(mark, [...(found.get(mark) ?? []), pid]);
    }
    return found;
  }

  /** Returns nothing if the table cannot be read, because a stop must not wait for it. */
  #living(): readonly ProcessFacts[] {
    const living = this.#table.living();
    return living === 'unknown' ? [] : living;
  }

  #store(server: string, added: readonly ProcessFacts[]): number {
    const known = this.#byServer.get(server) ?? [];
    const all = [...known.filter((one) => this.#lives(one)), ...added].slice(-perServerMax);
    if (all.length > 0) this.#byServer.set(server, all);
    else this.#byServer.delete(server);
    return all.length;
  }

  #lives({ pid, startTicks }: ProcessFacts): boolean {
    const now = this.#table.read(pid);
    // The process was running at the last successful read.
    if (now === 'unknown') return true;
    return now !== 'gone' && isSameStart(this.#table, now.startTicks, startTicks) && !isDead(now.state);
  }
}

function familyOf(living: readonly ProcessFacts[]): Family {
  const family = new Map<number, ProcessFacts[]>();
  for (const facts of living) {
    const siblings = family.get(facts.ppid);
    if (siblings) siblings.push(facts);
    else family.set(facts.ppid, [facts]);
  }
  return family;
}

function descendantsOf(pids: readonly number[], family: Family): ProcessFacts[] {
  const found: ProcessFacts[] = [];
  const seen = new Set(pids);
  // The set grows during the loop, generation by generation.
  for (const pid of seen) {
    for (const child of family.get(pid) ?? []) {
      if (seen.has(child.pid)) continue;
      seen.add(child.pid);
      found.push(child);
    }
  }
  return found;
}

const pidsOf = (processes: readonly ProcessFacts[]) => processes.map(({ pid }) => pid);
