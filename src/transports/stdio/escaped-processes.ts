/**
 * Processes that left the groups of servers which were stopped, by server, for as long as they run.
 * Not here: finding them (escapees.ts). They are told, never signalled.
 * Invariant: who is counted lives at this instant, and is the very process that was found.
 */
import { factsOf, isDead, isSameStart, type ProcessFacts, type ProcessTable } from './process-table.js';

/** Of one server; past it the oldest is forgotten. */
const perServerMax = 256;

type Found = Pick<ProcessFacts, 'pid' | 'startTicks'>;

export class EscapedProcesses {
  readonly #table: ProcessTable;
  /** Only servers of which something was found. */
  readonly #byServer = new Map<string, readonly Found[]>();

  constructor(table: ProcessTable) {
    this.#table = table;
  }

  add(server: string, pids: readonly number[]): void {
    if (pids.length === 0) return;
    const known = this.#byServer.get(server) ?? [];
    const added = pids.flatMap((pid) => this.#read(pid) ?? []);
    const all = [...known.filter((one) => this.#lives(one)), ...added];
    if (all.length > 0) this.#byServer.set(server, all.slice(-perServerMax));
  }

  /** Those that still run. */
  countOf(server: string): number {
    const known = this.#byServer.get(server);
    if (!known) return 0;
    const living = known.filter((one) => this.#lives(one));
    if (living.length === 0) this.#byServer.delete(server);
    else this.#byServer.set(server, living);
    return living.length;
  }

  #lives({ pid, startTicks }: Found): boolean {
    const now = this.#table.read(pid);
    // It ran when the table was last read.
    if (now === 'unknown') return true;
    return now !== 'gone' && isSameStart(this.#table, now.startTicks, startTicks) && !isDead(now.state);
  }

  #read(pid: number): Found | undefined {
    const facts = factsOf(this.#table.read(pid));
    return facts && { pid, startTicks: facts.startTicks };
  }
}
