/**
 * Checks that no other user can write to the state directory. Its files name processes to signal and approved tools, so such a
 * user could make Hostler signal any process and call any tool.
 * Not here: creating the directory and reading its files (pid-journal.ts).
 */
import { statSync } from 'node:fs';
import { HostError } from '../../kernel/errors.js';

const othersMayWrite = 0o022;

/** Throws if the directory belongs to another user or others may write to it. Passes if it does not exist. */
export function requireTrusted(stateDir: string, ownUid: number | undefined = process.getuid?.()): void {
  const facts = statSync(stateDir, { throwIfNoEntry: false });
  if (facts === undefined || ownUid === undefined) return;
  if (facts.uid !== ownUid) {
    throw untrusted(
      'foreign_owner',
      `the state directory ${stateDir} belongs to user ${facts.uid}, not to user ${ownUid}`,
      'give Hostler a state directory of its own',
    );
  }
  if ((facts.mode & othersMayWrite) !== 0) {
    throw untrusted(
      'others_may_write',
      `other users may write to the state directory ${stateDir}`,
      `remove that permission: chmod go-w ${stateDir}`,
    );
  }
}

const untrusted = (reason: string, what: string, hint: string): HostError =>
  new HostError('invalid_spec', `${what}: its files cannot be trusted`, {
    reason,
    field: 'stateDir',
    hint,
  });
