/**
 * Events for differences that pins found in a list, and for approvals.
 * Invariant: a difference is reported once, with the first list that contains it.
 */

import type { PinRecord } from '../policy/pin-records.js';
import type { PinChange } from '../policy/pins.js';
import type { PolicyEvent } from '../policy/policy-events.js';

type SchemaEvent = Extract<PolicyEvent, { readonly kind: 'schema' }>;

export function schemaEvents(changes: readonly PinChange[]): SchemaEvent[] {
  return changes
    .filter(({ isFresh }) => isFresh)
    .map(({ tool, status, record }) => {
      const { approved, pending, renamedFrom } = record ?? {};
      // Approved as a new tool: there is no old hash.
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

/** Undefined: the tool was approved already. */
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
