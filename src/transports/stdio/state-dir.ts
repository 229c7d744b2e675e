/**
 * Whether the directory of our state can be trusted: what is written there names processes to be signalled and tools that
 * were approved, so whoever can write to it can have us signal, and call, what he pleases.
 * Not here: making the directory (pid-journal.ts), reading what is in it (journal-reader.ts).
 */
import { statSync } from 'node:fs';
import { HostError } from '../../kernel/errors.js';

const othersMayWrite = 0o022;

/** Throws when the directory is another user's or others may write to it; passes when there is none. */
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
      `others may write to the state directory ${stateDir}`,
      `take the right from them: chmod go-w ${stateDir}`,
    );
  }
}

const untrusted = (reason: string, what: string, hint: string): HostError =>
  new HostError('invalid_spec', `${what}: what is written there cannot be trusted`, {
    reason,
    field: 'stateDir',
    hint,
  });
