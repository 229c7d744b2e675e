/**
 * Names the process that holds a lease, and says whether a named process is gone.
 * Invariant: a process that cannot be looked up (another container, another boot without proof) counts as present.
 */
import { isDead, isSameStart, systemTable } from '../transports/stdio/process-table.js';

interface Holder {
  readonly pid: number;
  readonly start: number;
  readonly boot: string;
  readonly space: string;
}

let own: string | undefined;

export function ownHolder(): string {
  own ??= JSON.stringify({
    pid: process.pid,
    start: systemTable.startOf(process.pid),
    boot: systemTable.bootId(),
    space: systemTable.pidSpace(),
  } satisfies Holder);
  return own;
}

export function isHolderGone(text: string): boolean {
  let holder: Partial<Holder>;
  try {
    holder = JSON.parse(text) as Partial<Holder>;
  } catch {
    return false;
  }
  const { pid, start = 0, boot = '', space } = holder;
  const here = JSON.parse(ownHolder()) as Holder;
  if (boot === '' || here.boot === '' || pid === undefined) return false;
  if (boot !== here.boot) return true;
  if (space !== here.space) return false;
  const found = systemTable.read(pid);
  if (found === 'unknown') return false;
  return found === 'gone' || isDead(found.state) || !isSameStart(systemTable, found.startTicks, start);
}
