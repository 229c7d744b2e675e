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
  newestFirst(): readonly (Approval & { readonly id: number })[];
  drop(id: number): void;
}

const approvalsMax = 20;

export const approvalsSchema = `
  CREATE TABLE IF NOT EXISTS approvals (id INTEGER PRIMARY KEY AUTOINCREMENT, approval TEXT NOT NULL);`;

export function approvalsTable(database: Database.Database): ApprovalLog {
  const insert = database.prepare('INSERT INTO approvals (approval) VALUES (?)');
  const trim = database.prepare(
    `DELETE FROM approvals WHERE id NOT IN (SELECT id FROM approvals ORDER BY id DESC LIMIT ${approvalsMax})`,
  );
  const all = database.prepare('SELECT id, approval FROM approvals ORDER BY id DESC');
  const remove = database.prepare('DELETE FROM approvals WHERE id = ?');
  return {
    push(approval) {
      insert.run(JSON.stringify(approval));
      trim.run();
    },
    newestFirst: () =>
      (all.all() as { id: number; approval: string }[]).map(({ id, approval }) => ({
        ...(JSON.parse(approval) as Approval),
        id,
      })),
    drop: (id) => void remove.run(id),
  };
}

/** For a host without a state file. */
export function memoryApprovals(): ApprovalLog {
  let approvals: (Approval & { readonly id: number })[] = [];
  let id = 0;
  return {
    push(approval) {
      approvals = [{ ...approval, id: id++ }, ...approvals].slice(0, approvalsMax);
    },
    newestFirst: () => approvals,
    drop(dropped) {
      approvals = approvals.filter((each) => each.id !== dropped);
    },
  };
}
