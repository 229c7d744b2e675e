/**
 * The group of a child whose Hostler is dead: who of it still lives, and signals to those.
 * Not here: which groups there are (journal-reader.ts), when to signal (reaper.ts).
 *
 * Invariant: nobody else is signalled. The group's number is ours while its leader has the pid and the start time that
 * were written down, and after that while anybody lives whom we saw in it together with that leader: as long as a group
 * has a member, the system gives its number to nobody else. When neither is there, nothing ties the number to us, and
 * only members that carry the mark of the run are ours, each by itself.
 */
import { runMark } from '../environment.js';
import type { JournalEntry } from './pid-journal.js';
import { type Kill, ProcessGroup, signallable } from './process-group.js';
import type { ProcessFacts, ProcessTable } from './process-table.js';

type Tie = 'number' | 'marks' | 'none';

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

  /** Living members that are ours. Throws when the table cannot be read. */
  members(): readonly ProcessFacts[] {
    switch (this.#tie()) {
      case 'number':
        this.#witnesses = this.#group.members();
        return this.#witnesses;
      case 'marks':
        return this.#marked();
      case 'none':
        return [];
    }
  }

  /** Returns the pids of those it was meant for. */
  signal(...signals: NodeJS.Signals[]): number[] {
    try {
      const pids = this.members().map(({ pid }) => pid);
      if (this.#tie() === 'number') this.#group.signal(...signals);
      else for (const pid of pids) for (const signal of signals) this.#signalOne(pid, signal);
      return pids;
    } catch {
      // Cannot look, so cannot tell whose they are.
      return [];
    }
  }

  #tie(): Tie {
    const { pid, startTicks } = this.#entry;
    const holder = this.#table.read(pid);
    if (holder) return holder.startTicks === startTicks && holder.pgid === pid ? 'number' : 'none';
    return this.#witnesses.some((witness) => this.#isStillIn(witness)) ? 'number' : 'marks';
  }

  #isStillIn(witness: ProcessFacts): boolean {
    const now = this.#table.read(witness.pid);
    return now !== undefined && now.startTicks === witness.startTicks && now.pgid === this.#entry.pid;
  }

  #marked(): ProcessFacts[] {
    return this.#table
      .living()
      .filter(({ pid, pgid }) => pgid === this.#entry.pid && signallable(pid) && pid !== process.pid)
      .filter(({ pid }) => this.#table.mark(pid) === this.#mark);
  }

  #signalOne(pid: number, signal: NodeJS.Signals): void {
    try {
      this.#kill(pid, signal);
    } catch {
      // Gone meanwhile, or not ours to signal.
    }
  }
}
