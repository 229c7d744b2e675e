/**
 * Finds processes of a run that left their group (setsid, daemons): they carry the run's mark but are out of reach of a
 * group signal. They are counted and told, never signalled: whoever leaves on purpose may have a reason to stay.
 * A process that wiped its environment is not found; only the sandbox profile holds such a one.
 *
 * Questions asked in the same moment share one walk through the process table: fifty servers stop at once, and each
 * walk reads some hundred files.
 */
import type { ProcessFacts, ProcessTable } from './process-table.js';

interface Question {
  readonly mark: string;
  readonly sinceTicks: number;
  readonly answer: (pids: number[]) => void;
}

export class Escapees {
  readonly #table: ProcessTable;
  #waiting: Question[] = [];

  constructor(table: ProcessTable) {
    this.#table = table;
  }

  /** Pids of living processes with this mark, started no earlier than `sinceTicks`. Ask when the group is empty. */
  find(mark: string, sinceTicks: number): Promise<number[]> {
    return new Promise((answer) => {
      this.#waiting.push({ mark, sinceTicks, answer });
      if (this.#waiting.length === 1) setImmediate(() => this.#walk());
    });
  }

  #walk(): void {
    const questions = this.#waiting;
    this.#waiting = [];
    const sinceTicks = Math.min(...questions.map((question) => question.sinceTicks));
    const found = new Map<string, number[]>();
    for (const { pid, startTicks } of this.#living()) {
      if (startTicks < sinceTicks) continue;
      const mark = this.#table.mark(pid);
      if (mark !== undefined) found.set(mark, [...(found.get(mark) ?? []), pid]);
    }
    for (const { mark, answer } of questions) answer(found.get(mark) ?? []);
  }

  /** A stop must not fail because this could not be counted. */
  #living(): ProcessFacts[] {
    try {
      return this.#table.living();
    } catch {
      return [];
    }
  }
}
