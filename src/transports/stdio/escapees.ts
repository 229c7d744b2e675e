/**
 * Finds processes of a run that left their group (setsid, daemons) and are out of reach of a group signal. They are
 * counted and told, never signalled: whoever leaves on purpose may have a reason to stay.
 * Known by two signs: the run's mark in the environment, and descent from the leader when its stop began. One that had
 * wiped its environment and left its parent before that shows neither; only the sandbox profile holds such a one. Of a
 * server that ended by itself the descent cannot be seen any more, and the mark alone counts.
 *
 * Questions asked in the same moment share one walk through the process table: fifty servers stop at once, and each
 * walk reads some hundred files.
 */
import type { GroupLeader } from './process-group.js';
import { isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';

export interface LostRun {
  readonly leader: GroupLeader;
  readonly mark: string;
  /** What descended from the leader when its stop began. */
  readonly descendants: readonly ProcessFacts[];
}

interface Question extends LostRun {
  readonly answer: (pids: number[]) => void;
}

type Family = ReadonlyMap<number, readonly ProcessFacts[]>;

export class Escapees {
  readonly #table: ProcessTable;
  #waiting: Question[] = [];
  #family: Family | undefined;

  constructor(table: ProcessTable) {
    this.#table = table;
  }

  /** What descends from this process now. Ask before it is stopped: when it has gone, its children have another parent. */
  descendants(pid: number): ProcessFacts[] {
    if (!this.#family) {
      this.#family = familyOf(this.#living());
      setImmediate(() => {
        this.#family = undefined;
      });
    }
    return descendantsOf([pid], this.#family);
  }

  /** Pids of what lives of the run outside its group. Ask when the group is empty. */
  find(run: LostRun): Promise<number[]> {
    return new Promise((answer) => {
      this.#waiting.push({ ...run, answer });
      if (this.#waiting.length === 1) setImmediate(() => this.#walk());
    });
  }

  #walk(): void {
    const questions = this.#waiting;
    this.#waiting = [];
    const living = this.#living();
    const byPid = new Map(living.map((facts) => [facts.pid, facts]));
    const family = familyOf(living);
    const sinceTicks = Math.min(...questions.map(({ leader }) => leader.startTicks)) - this.#table.startSlack;
    const marked = this.#byMark(living, sinceTicks);
    for (const { leader, mark, descendants, answer } of questions) {
      const kept = descendants.filter(({ pid, startTicks }) => {
        const now = byPid.get(pid);
        return now !== undefined && isSameStart(this.#table, now.startTicks, startTicks);
      });
      const keptPids = kept.map(({ pid }) => pid);
      const found = [...keptPids, ...pidsOf(descendantsOf(keptPids, family)), ...(marked.get(mark) ?? [])];
      const outside = new Set(found.filter((pid) => byPid.get(pid)?.pgid !== leader.pid));
      answer([...outside].sort((one, other) => one - other));
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

  /** A stop does not wait for a table that cannot be read: then none is found, and none is signalled either way. */
  #living(): readonly ProcessFacts[] {
    const living = this.#table.living();
    return living === 'unknown' ? [] : living;
  }
}

/** Parent → its children. */
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
  // Grows while it is walked, generation by generation.
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
