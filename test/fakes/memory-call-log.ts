/** The log in memory, and logs with a planted bug, which the contract suite must find. */
import type { CallId, CallLog, CallOutcome, CallRow } from '../../src/broker/calls/call-log.js';
import { MemoryCallLog, MemoryRows } from '../../src/broker/calls/memory-call-log.js';
import type { Clock } from '../../src/kernel/clock.js';

export { MemoryCallLog, MemoryRows };

/** One store with several hosts: each `open` is another start of a process. */
export const memoryStore = (clock: Clock, rows = new MemoryRows()) => ({
  open: async (storeId?: string): Promise<CallLog> => new MemoryCallLog(clock, rows, storeId),
});

/** Begins a row that another host has begun since. */
export class BeginsTwice extends MemoryCallLog {
  override async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const row = await this.find(id);
    return super.begin(id, row?.version ?? version);
  }
}

/** Writes an outcome over another one. */
export class OverwritesOutcomes extends MemoryCallLog {
  override async finish(id: CallId, _owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    const row = (await this.find(id)) as { state: string; owner: string; reply: Buffer } | undefined;
    if (row) Object.assign(row, { state: outcome.state, reply: outcome.reply });
    return row as CallRow | undefined;
  }
}
