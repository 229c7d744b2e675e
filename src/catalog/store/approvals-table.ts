/**
 * The newest approvals of tools, for `hostler approve --undo`. Kept in state.db, because a host may end between an approval and
 * its undo.
 * Invariant: at most `approvalsMax` approvals; the oldest is deleted first.
 */
import type Database from 'libsql';
import type { PinRecord } from '../../policy/pin-records.js';

interface Approval {
  readonly server: string;
  readonly tool: string;
  /** The hash that was approved. */
  readonly hash: string;
  /** The record before the approval. */
  readonly before: PinRecord;
}

export interface ApprovalLog {
  push(approval: Approval): void;
  last(): Approval | undefined;
  dropLast(): void;
}

const approvalsMax = 20;

export const approvalsSchema = `
  CREATE TABLE IF NOT EXISTS approvals (id INTEGER PRIMARY KEY AUTOINCREMENT, approval TEXT NOT NULL);`;

export function approvalsTable(database: Database.Database): ApprovalLog {
  const insert = database.prepare('INSERT INTO approvals (approval) VALUES (?)');
  const trim = database.prepare(
    `DELETE FROM approvals WHERE id NOT IN (SELECT id FROM approvals ORDER BY id DESC LIMIT ${approvalsMax})`,
  );
  const newest = database.prepare('SELECT approval FROM approvals ORDER BY id DESC LIMIT 1');
  const remove = database.prepare('DELETE FROM approvals WHERE id = (SELECT max(id) FROM approvals)');
  return {
    push(approval) {
      insert.run(JSON.stringify(approval));
      trim.run();
    },
    last() {
      const row = newest.get() as { approval: string } | undefined;
      return row && (JSON.parse(row.approval) as Approval);
    },
    dropLast: () => void remove.run(),
  };
}

/** For a host without a state file. */
export function memoryApprovals(): ApprovalLog {
  const approvals: Approval[] = [];
  return {
    push(approval) {
      approvals.push(approval);
      if (approvals.length > approvalsMax) approvals.shift();
    },
    last: () => approvals.at(-1),
    dropLast: () => void approvals.pop(),
  };
}
