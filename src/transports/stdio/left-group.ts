/**
 * The group of a child whose Hostler is dead: who of it still lives, and signals to those.
 * Not here: which groups there are (journal-reader.ts), when to signal (reaper.ts).
 *
 * Invariants: nothing is signalled, and nothing is called gone, while the process table does not tell whose the members are.
 * No other process is signalled. The group's number is ours while its leader has the pid and the start time that
 * were written down, and after that while anybody lives whom we saw in it together with that leader: as long as a group
 * has a member, the system gives its number to nobody else. When neither is there, nothing ties the number to us, and
 * only members that carry the mark of the run are ours, each by itself.
 */
import { runMark } from '../environment.js';
import type { JournalEntry } from './pid-journal.js';
import { type Kill, ProcessGroup, signallable } from './process-group.js';
import { factsOf, isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';

type Tie = 'number' | 'marks' | 'none' | 'unknown';

export class LeftGroup {
  readonly #entry: JournalEntry;
  readonly #mark: string;
  readonly #table: ProcessTable;
  readonly #kill: Kill;
  readonly #group: ProcessGroup;
  #witnesses: readonly ProcessFacts[] = [];

  constructor(entry: JournalEntry, instanceId: string, table: ProcessTable, kill: Kill) {
    this.#entry = entry;
    this.#mark = runMark(instanceId, entry.run);
    this.#table = table;
    this.#kill = kill;
    this.#group = new ProcessGroup(entry, table, kill);
  }

  /** Living members that are ours. */
  members(): readonly ProcessFacts[] | 'unknown' {
    switch (this.#tie()) {
      case 'number': {
        const members = this.#group.members();
        if (members !== 'unknown') this.#witnesses = members;
        return members;
      }
      case 'marks':
        return this.#marked();
      case 'none':
        return [];
      case 'unknown':
        return 'unknown';
    }
  }

  /** Returns the pids of those it was meant for; none while it is not known whose they are. */
  signal(...signals: NodeJS.Signals[]): number[] {
    const members = this.members();
    if (members === 'unknown') return [];
    const pids = members.map(({ pid }) => pid);
    switch (this.#tie()) {
      case 'number':
        this.#group.signal(...signals);
        return pids;
      case 'marks':
        for (const pid of pids) for (const signal of signals) this.#signalOne(pid, signal);
        return pids;
      default:
        return [];
    }
  }

  #tie(): Tie {
    const { pid, startTicks } = this.#entry;
    const holder = this.#table.read(pid);
    if (holder === 'unknown') return 'unknown';
    if (holder !== 'gone') {
      return isSameStart(this.#table, holder.startTicks, startTicks) && holder.pgid === pid ? 'number' : 'none';
    }
    return this.#witnesses.some((witness) => this.#isStillIn(witness)) ? 'number' : 'marks';
  }

  #isStillIn(witness: ProcessFacts): boolean {
    const now = factsOf(this.#table.read(witness.pid));
    return (
      now !== undefined && isSameStart(this.#table, now.startTicks, witness.startTicks) && now.pgid === this.#entry.pid
    );
  }

  #marked(): readonly ProcessFacts[] | 'unknown' {
    const living = this.#table.living();
    if (living === 'unknown') return 'unknown';
    const members = living.filter(
      ({ pid, pgid }) => pgid === this.#entry.pid && signallable(pid) && pid !== process.pid,
    );
    // The group has members, and without marks it is not known whether they are ours.
    if (!this.#table.seesMarks) return members.length === 0 ? [] : 'unknown';
    return members.filter(({ pid }) => this.#table.mark(pid) === this.#mark);
  }

  #signalOne(pid: number, signal: NodeJS.Signals): void {
    try {
      this.#kill(pid, signal);
    } catch {
      // Gone meanwhile, or not ours to signal.
    }
  }
}
