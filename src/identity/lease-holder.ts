/**
 * Names the holder of a lease, and says whether its process is gone. Two hosts of one process are two holders.
 * Invariant: a process that cannot be looked up (another container, another boot without proof) counts as present.
 */
import { newId } from '../kernel/random.js';
import { fateOf, isOwner, ownerHere, type ProcessOwner } from '../transports/stdio/process-owner.js';
import { systemTable } from '../transports/stdio/process-table.js';
import { parseJson } from './json.js';

let own: ProcessOwner | undefined;

export function newHolder(): string {
  own ??= ownerHere(systemTable);
  return JSON.stringify({ ...own, id: newId() });
}

export function isHolderGone(text: string): boolean {
  const holder = parseJson(text);
  return isOwner(holder) && /^(?:dead|other_boot)$/.test(fateOf(holder, systemTable));
}
