/**
 * Changes single members in the text of `hostler.json`. Comments, order and white space of all other members do not change.
 * Not here: reading the file (config-file.ts), the lock between commands (kernel/edit-lock.ts).
 * Invariants: the file is replaced as a whole, with its mode and owner, or not at all. A symbolic link stays a link. A text
 * that cannot be parsed is not written.
 */
import {
  closeSync,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  openSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { applyEdits, modify } from 'jsonc-parser';
import { withEditLock } from '../kernel/edit-lock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { replaceFile } from '../kernel/replace-file.js';
import { parseConfigText, readConfigSource } from './config-file.js';

/** An undefined `value` removes the member. `check` gets the current configuration, and throws to refuse the change. */
export function editConfigFile(
  file: string,
  place: readonly string[],
  value: unknown,
  check: (config: unknown) => void = () => {},
): void {
  try {
    // This first read reports a missing file before a lock file is created beside it.
    const { realFile: real } = readConfigSource(file);
    withEditLock(real, () => {
      const { text } = readConfigSource(real);
      check(parseConfigText(text, file));
      const formattingOptions = { insertSpaces: true, tabSize: 2, eol: text.includes('\r\n') ? '\r\n' : '\n' };
      const changed = applyEdits(text, modify(text, [...place], value, { formattingOptions }));
      parseConfigText(changed, file);
      replace(real, changed);
    });
  } catch (error) {
    if (isHostError(error)) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw unwritable(file, `(${code ?? 'unwritable'})`, 'allow this user to write to it and to its folder', error);
  }
}

function replace(file: string, text: string): void {
  const facts = statSync(file);
  if (facts.nlink > 1)
    throw unwritable(
      file,
      'because it has other names (hard links), which would keep the old content',
      'remove the other hard links, or use symbolic links',
    );
  const folder = path.dirname(file);
  const beside = path.join(folder, `.${path.basename(file)}.${process.pid}.new`);
  replaceFile(file, beside, (made) => {
    writeFileSync(made, text);
    copyOwner(made, facts, file);
  });
  syncFolder(folder);
}

function copyOwner(made: number, { uid, gid, mode }: Stats, file: string): void {
  const own = fstatSync(made);
  if (own.uid !== uid || own.gid !== gid) {
    try {
      fchownSync(made, uid, gid);
    } catch (cause) {
      throw unwritable(
        file,
        'without changing its owner',
        `run the command as its owner (user ${uid}, group ${gid})`,
        cause,
      );
    }
  }
  fchmodSync(made, mode & 0o777);
}

/** Makes the rename survive a power loss, if the file system supports it. */
function syncFolder(folder: string): void {
  try {
    const opened = openSync(folder, 'r');
    try {
      fsyncSync(opened);
    } finally {
      closeSync(opened);
    }
  } catch {
    // The change itself is already visible.
  }
}

const unwritable = (file: string, why: string, hint: string, cause?: unknown): HostError =>
  new HostError('invalid_spec', `the configuration ${file} cannot be written ${why}`, {
    field: '--config',
    reason: 'config',
    hint,
    cause,
  });
