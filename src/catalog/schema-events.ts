/**
 * What pins found in a list, and what an operator approved, as events.
 * Invariant: a difference is told when a list brings it, and not again with each list that still has it.
 */
import type { PolicyEvent } from '../policy/call-events.js';
import type { PinRecord } from '../policy/pin-store.js';
import type { PinChange } from '../policy/pins.js';

type SchemaEvent = Extract<PolicyEvent, { readonly kind: 'schema' }>;

export function schemaEvents(changes: readonly PinChange[]): SchemaEvent[] {
  return changes
    .filter(({ isFresh }) => isFresh)
    .map(({ tool, status, record }) => {
      const { approved, pending, renamedFrom } = record ?? {};
      // Approved on first sight: there was nothing before it.
      const isFirst = status === 'approved';
      return {
        kind: 'schema',
        tool,
        status,
        oldHash: isFirst ? undefined : approved?.hash,
        newHash: isFirst ? approved?.hash : pending?.hash,
        renamedFrom,
      };
    });
}

/** Undefined when nothing changed by it. */
export function approvalEvent(
  tool: string,
  before: PinRecord | undefined,
  after: PinRecord | undefined,
): SchemaEvent | undefined {
  const oldHash = before?.approved?.hash;
  const newHash = after?.approved?.hash;
  if (oldHash === newHash) return undefined;
  return { kind: 'schema', tool, status: 'approved', oldHash, newHash, renamedFrom: before?.renamedFrom };
}
