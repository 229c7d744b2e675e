/**
 * Names the process that wrote a file or a row, so that a later reader knows whether it still runs.
 * Invariant: a process counts as dead only if that is proven.
 */
import { isDead, isSameStart, type ProcessTable } from './process-table.js';

export interface ProcessOwner {
  readonly ownerPid: number;
  /** 0: it could not be read. */
  readonly ownerStartTicks: number;
  readonly bootId: string;
  readonly pidSpace: string;
}

/** This process. */
export function ownerHere(table: ProcessTable): ProcessOwner {
  let ownerStartTicks = 0;
  try {
    ownerStartTicks = table.startOf(process.pid);
  } catch {
    // The table cannot be read now.
  }
  return { ownerPid: process.pid, ownerStartTicks, bootId: table.bootId(), pidSpace: table.pidSpace() };
}

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;

export function isOwner(value: unknown): value is ProcessOwner {
  if (typeof value !== 'object' || value === null) return false;
  const { ownerPid, ownerStartTicks, bootId, pidSpace } = value as Record<string, unknown>;
  return isCount(ownerPid) && isCount(ownerStartTicks) && typeof bootId === 'string' && typeof pidSpace === 'string';
}

type Fate = 'alive' | 'dead' | 'other_boot' | 'other_container' | 'unknown';

export function fateOf(owner: ProcessOwner, table: ProcessTable): Fate {
  const bootId = table.bootId();
  if (owner.bootId !== bootId) return owner.bootId === '' || bootId === '' ? 'unknown' : 'other_boot';
  // The process table of this container does not show the processes of another container.
  if (owner.pidSpace !== table.pidSpace()) return 'other_container';
  const found = table.read(owner.ownerPid);
  if (found === 'unknown') return 'unknown';
  if (found === 'gone' || isDead(found.state)) return 'dead';
  // The owner could not read its start time, and a pid alone does not prove that it is dead.
  if (owner.ownerStartTicks === 0) return 'unknown';
  return isSameStart(table, found.startTicks, owner.ownerStartTicks) ? 'alive' : 'dead';
}
