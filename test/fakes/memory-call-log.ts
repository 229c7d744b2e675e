/**
 * The log of calls in memory, with the same bounds. Several logs on one `MemoryRows` are several hosts on one store. Below it are logs
 * with a planted bug, which the contract suite must find.
 */

import { CallBounds, keptMs } from '../../src/broker/calls/call-bounds.js';
import type { CallId, CallLog, CallOutcome, CallRow, NewCall, Received } from '../../src/broker/calls/call-log.js';
import { brokerLimits } from '../../src/broker/protocol/limits.js';
import type { LogUsage } from '../../src/host/broker-status.js';
import type { Clock } from '../../src/kernel/clock.js';
import type { HostError } from '../../src/kernel/errors.js';
import { newId } from '../../src/kernel/random.js';
import { compositeKey } from '../../src/policy/composite-key.js';

interface MemoryRow extends CallRow {
  readonly id: CallId;
  readonly isCallersKey: boolean;
  readonly expiresAtMs: number;
  /** The worker of the row was revoked. */
  readonly isPurged: boolean;
}

export class MemoryRows {
  readonly rows = new Map<string, MemoryRow>();
  /** Hosts whose log is open. */
  readonly owners = new Set<string>();
  readonly bounds: CallBounds;

  constructor(clock: Clock) {
    this.bounds = new CallBounds(clock, (kind, worker) => {
      const expiries = [...this.rows.values()]
        .filter(
          (row) =>
            !isOpen(row) && row.isCallersKey === (kind === 'keys') && (worker ?? row.id.worker) === row.id.worker,
        )
        .map(({ expiresAtMs }) => expiresAtMs);
      return expiries.length > 0 ? Math.min(...expiries) - clock.nowMs() : keptMs[kind];
    });
  }
}

export class MemoryCallLog implements CallLog {
  readonly storeId: string;
  readonly owner = newId();
  readonly #clock: Clock;
  readonly #store: MemoryRows;

  constructor(clock: Clock, store = new MemoryRows(clock), storeId = newId()) {
    this.#clock = clock;
    this.#store = store;
    this.storeId = storeId;
    store.owners.add(this.owner);
  }

  refusal(worker: string, isCallersKey: boolean): HostError | undefined {
    this.#sweep();
    return this.#store.bounds.refusal(worker, isCallersKey);
  }

  async receive({ id, digest, isCallersKey, deadlineMs, state, reply }: NewCall): Promise<Received> {
    this.#sweep();
    const known = this.#store.rows.get(keyOf(id));
    if (known) return { isNew: false, row: known };
    const keptMs = isCallersKey ? brokerLimits.callersKeyMs : deadlineMs + brokerLimits.unackedMs;
    const row: MemoryRow = {
      ...{ id, digest, isCallersKey, state, reply, owner: this.owner, version: 1, isPurged: false },
      ...{ attempts: state === 'running' ? 1 : 0, expiresAtMs: this.#clock.nowMs() + keptMs },
    };
    this.#put(row);
    return { isNew: true, row };
  }

  async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const row = this.#store.rows.get(keyOf(id));
    if (!row || row.version !== version || !isOpen(row)) return row;
    const { attempts } = row;
    this.#put({ ...row, state: 'running', owner: this.owner, attempts: attempts + 1, version: version + 1 });
    return 'begun';
  }

  finish(id: CallId, owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    // Written a moment later, as in a real store: until then the replies that end at once all count.
    return this.#store.bounds.finish(id.worker, outcome, ({ state, reply }) =>
      Promise.resolve().then(() => this.#finish(id, owner, state, reply)),
    );
  }

  async find(id: CallId): Promise<CallRow | undefined> {
    const row = this.#store.rows.get(keyOf(id));
    return row?.isPurged && !isOpen(row) ? undefined : row;
  }

  acknowledge(id: CallId): void {
    const row = this.#store.rows.get(keyOf(id));
    if (row && !isOpen(row) && (!row.isCallersKey || row.state === 'refused')) this.#remove(row);
  }

  async purge(worker: string, except: readonly string[] = []): Promise<void> {
    for (const row of [...this.#store.rows.values()]) {
      if (row.id.worker !== worker || except.includes(row.id.epoch) || row.isPurged) continue;
      this.#remove(row);
      if (row.state !== 'received') this.#put({ ...row, isPurged: true, reply: undefined });
    }
  }

  async isGone(owner: string): Promise<boolean> {
    return !this.#store.owners.has(owner);
  }

  usage(): LogUsage {
    return this.#store.bounds.usage();
  }

  async close(): Promise<void> {
    this.#store.owners.delete(this.owner);
  }

  #finish(id: CallId, owner: string, state: CallOutcome['state'], reply: Buffer): CallRow | undefined {
    const row = this.#store.rows.get(keyOf(id));
    if (!row || row.owner !== owner || !isOpen(row)) return row;
    const made = { ...row, state, version: row.version + 1, reply: row.isPurged ? undefined : reply };
    this.#put(made);
    return made;
  }

  #put(row: MemoryRow): void {
    const before = this.#store.rows.get(keyOf(row.id));
    if (before) this.#count(before, -1);
    this.#store.rows.set(keyOf(row.id), row);
    this.#count(row, 1);
  }

  #remove(row: MemoryRow): void {
    this.#store.rows.delete(keyOf(row.id));
    this.#count(row, -1);
    this.#store.bounds.wake();
  }

  #count(row: MemoryRow, sign: 1 | -1): void {
    if (row.isPurged) return;
    const [open, finished] = isOpen(row) ? [sign, 0] : [0, sign];
    const { isCallersKey, id, reply } = row;
    this.#store.bounds.change({ worker: id.worker, isCallersKey, open, finished, bytes: sign * (reply?.length ?? 0) });
  }

  #sweep(): void {
    const nowMs = this.#clock.nowMs();
    // Rows are nearly sorted by expiry, so this reads only a few.
    for (const row of this.#store.rows.values()) {
      if (row.expiresAtMs > nowMs) break;
      this.#remove(row);
    }
  }
}

const isOpen = ({ state }: CallRow): boolean => state === 'received' || state === 'running';

const keyOf = ({ worker, epoch, key }: CallId): string => compositeKey(worker, epoch, key);

/** Planted bug: begins a row that another host has already begun. */
export class BeginsTwice extends MemoryCallLog {
  override async begin(id: CallId, version: number): Promise<'begun' | CallRow | undefined> {
    const row = await this.find(id);
    return super.begin(id, row?.version ?? version);
  }
}

/** Planted bug: replaces an outcome with a later one. */
export class OverwritesOutcomes extends MemoryCallLog {
  override async finish(id: CallId, _owner: string, outcome: CallOutcome): Promise<CallRow | undefined> {
    const row = (await this.find(id)) as { state: string; owner: string; reply: Buffer } | undefined;
    if (row) Object.assign(row, { state: outcome.state, reply: outcome.reply });
    return row as CallRow | undefined;
  }
}
