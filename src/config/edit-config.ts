/**
 * Changes single members of `hostler.json` in its text: comments, order and blanks of everything else stay as a person
 * wrote them.
 * Not here: reading it (config-file.ts), what the members mean.
 *
 * Invariants: the file is replaced as a whole, with its mode, or not at all; a text that cannot be read is not written.
 */
import { renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { applyEdits, modify } from 'jsonc-parser';
import { HostError } from '../kernel/errors.js';
import { parseConfigText, readConfigText } from './config-file.js';

/** `value` undefined takes the member away. */
export function editConfigFile(file: string, place: readonly string[], value: unknown): void {
  const text = readConfigText(file);
  parseConfigText(text, file);
  const formattingOptions = { insertSpaces: true, tabSize: 2, eol: text.includes('\r\n') ? '\r\n' : '\n' };
  const changed = applyEdits(text, modify(text, [...place], value, { formattingOptions }));
  parseConfigText(changed, file);
  replace(file, changed);
}

function replace(file: string, text: string): void {
  const beside = path.join(path.dirname(file), `.${path.basename(file)}.${process.pid}.new`);
  try {
    const { mode } = statSync(file);
    writeFileSync(beside, text, { mode: mode & 0o777, flag: 'wx' });
    renameSync(beside, file);
  } catch (error) {
    rmSync(beside, { force: true });
    const { code } = error as NodeJS.ErrnoException;
    throw new HostError('invalid_spec', `the configuration ${file} cannot be written (${code ?? 'unwritable'})`, {
      field: '--config',
      reason: 'config',
      hint: 'see that you may write to it and to its folder',
      cause: error,
    });
  }
}
