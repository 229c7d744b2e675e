/**
 * Names the holder of a lease, and says whether its process is gone. Two hosts of one process are two holders.
 * Invariant: a process that cannot be looked up (another container, another boot without proof) counts as present.
 */
import { newId } from '../kernel/random.js';
import { isDead, isSameStart, systemTable } from '../transports/stdio/process-table.js';

interface Holder {
  readonly pid: number;
  readonly start: number;
  readonly boot: string;
  readonly space: string;
}

let own: Holder | undefined;

function ownProcess(): Holder {
  own ??= {
    pid: process.pid,
    start: systemTable.startOf(process.pid),
    boot: systemTable.bootId(),
    space: systemTable.pidSpace(),
  };
  return own;
}

export const newHolder = (): string => JSON.stringify({ ...ownProcess(), id: newId() });

export function isHolderGone(text: string): boolean {
  let holder: Partial<Holder>;
  try {
    holder = JSON.parse(text) as Partial<Holder>;
  } catch {
    return false;
  }
  const { pid, start = 0, boot = '', space } = holder;
  const here = ownProcess();
  if (boot === '' || here.boot === '' || pid === undefined) return false;
  if (boot !== here.boot) return true;
  if (space !== here.space) return false;
  const found = systemTable.read(pid);
  if (found === 'unknown') return false;
  return found === 'gone' || isDead(found.state) || !isSameStart(systemTable, found.startTicks, start);
}
