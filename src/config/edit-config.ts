/**
 * Changes single members of `hostler.json` in its text: comments, order and blanks of everything else stay as a person
 * wrote them.
 * Not here: reading it (config-file.ts), what the members mean, whose turn it is (edit-lock.ts).
 *
 * Invariants: the file is replaced as a whole, with its mode and owner, or not at all; the file behind a link is, and not the link; a
 * text that cannot be read is not written; of two commands at once the second changes what the first wrote.
 */
import {
  closeSync,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  openSync,
  realpathSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { applyEdits, modify } from 'jsonc-parser';
import { HostError, isHostError } from '../kernel/errors.js';
import { replaceFile } from '../kernel/replace-file.js';
import { parseConfigText, readConfigText } from './config-file.js';
import { withEditLock } from './edit-lock.js';

/** `value` undefined takes the member away. `check` sees the file as it is now, and throws when it is not to be changed. */
export function editConfigFile(
  file: string,
  place: readonly string[],
  value: unknown,
  check: (config: unknown) => void = () => {},
): void {
  try {
    // Before anything is made beside it: that it is not there is told as such.
    readConfigText(file);
    const real = realpathSync(file);
    withEditLock(real, () => {
      const text = readConfigText(real);
      check(parseConfigText(text, file));
      const formattingOptions = { insertSpaces: true, tabSize: 2, eol: text.includes('\r\n') ? '\r\n' : '\n' };
      const changed = applyEdits(text, modify(text, [...place], value, { formattingOptions }));
      parseConfigText(changed, file);
      replace(real, changed);
    });
  } catch (error) {
    if (isHostError(error)) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw unwritable(file, `(${code ?? 'unwritable'})`, 'see that you may write to it and to its folder', error);
  }
}

function replace(file: string, text: string): void {
  const facts = statSync(file);
  if (facts.nlink > 1)
    throw unwritable(
      file,
      'without leaving its other names (hard links) behind',
      'give it one name, or a symbolic link',
    );
  const folder = path.dirname(file);
  const beside = path.join(folder, `.${path.basename(file)}.${process.pid}.new`);
  replaceFile(file, beside, (made) => {
    writeFileSync(made, text);
    giveTo(made, facts, file);
  });
  syncFolder(folder);
}

/** Whoever reads it now can read the new one, and nobody else can. */
function giveTo(made: number, { uid, gid, mode }: Stats, file: string): void {
  const own = fstatSync(made);
  if (own.uid !== uid || own.gid !== gid) {
    try {
      fchownSync(made, uid, gid);
    } catch (cause) {
      throw unwritable(
        file,
        'and remain with its owner',
        `run the command as its owner (user ${uid}, group ${gid})`,
        cause,
      );
    }
  }
  fchmodSync(made, mode & 0o777);
}

/** What was renamed is there after a loss of power too. Not every file system can. */
function syncFolder(folder: string): void {
  try {
    const opened = openSync(folder, 'r');
    try {
      fsyncSync(opened);
    } finally {
      closeSync(opened);
    }
  } catch {
    // The change is made, and on disk before long.
  }
}

const unwritable = (file: string, why: string, hint: string, cause?: unknown): HostError =>
  new HostError('invalid_spec', `the configuration ${file} cannot be written ${why}`, {
    field: '--config',
    reason: 'config',
    hint,
    cause,
  });
