/**
 * A tool that waits for approval, prepared for a review: the changed fields, those with the largest effect first, each with its
 * invisible characters and added instructions.
 * Not here: the comparison itself (wording.ts), approving (pins.ts).
 */
import { unseenCharacters } from '../kernel/terminal-text.js';
import { addedImperatives } from './imperatives.js';
import type { PinRecord, PinStatus } from './pin-records.js';
import { type FieldChange, fieldChanges } from './wording.js';

interface ReviewedChange extends FieldChange {
  /** Code points in the new value that cannot be seen, such as `U+202E`. */
  readonly invisible: readonly string[];
  /** Added sentences that tell a model what to do. */
  readonly imperatives: readonly string[];
}

export interface PinReview {
  readonly server: string;
  readonly tool: string;
  readonly status: PinStatus;
  /** True: calls are refused until the listed version is approved. */
  readonly blocks: boolean;
  /** Hash of the listed version; undefined: it is ambiguous and cannot be approved. */
  readonly hash: string | undefined;
  readonly approvedHash: string | undefined;
  readonly renamedFrom: string | undefined;
  readonly changes: readonly ReviewedChange[];
}

/** In the form that `hostler approve --hash` accepts. */
const hashText = (hash: string | undefined): string | undefined => (hash === undefined ? undefined : `sha256:${hash}`);

export function reviewOf(server: string, record: PinRecord, status: PinStatus, blocks: boolean): PinReview {
  const { name: tool, approved, pending, renamedFrom } = record;
  const changes = pending?.raw === undefined ? [] : fieldChanges(approved?.raw, pending.raw);
  return {
    ...{ server, tool, status, blocks, renamedFrom },
    hash: hashText(pending?.hash),
    approvedHash: hashText(approved?.hash),
    changes: changes.map((change) => ({
      ...change,
      invisible: change.after === undefined ? [] : unseenCharacters(change.field + change.after),
      imperatives: addedImperatives(textOf(change.before), textOf(change.after)),
    })),
  };
}

const textOf = (json: string | undefined): string => {
  const value: unknown = json === undefined ? '' : JSON.parse(json);
  return typeof value === 'string' ? value : (json ?? '');
};
