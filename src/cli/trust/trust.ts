/**
 * `hostler trust`: shows what a `hostler.json` would run, and confirms that it may be used from its folder. A Hostler that runs
 * with that file takes the confirmation within a second.
 */
import path from 'node:path';
import { HostError } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { Words } from '../command.js';
import { EXIT } from '../exit-codes.js';
import { configFileName, realPath } from '../find-config.js';
import { printJson, printText } from '../print.js';
import { textTable } from '../text-table.js';
import { confirm, isAnsweredYes, isTerminal, ownTerminal, textOf } from './ask-trust.js';
import { isConfirmed, readFound, trustStoreOf } from './trusted-source.js';

const pathChars = 300;

export async function trust(words: Words, terminal = ownTerminal(), env = process.env): Promise<number> {
  const [given] = words.positionals;
  if (words.has('list') && (words.has('remove') || words.has('yes') || given !== undefined))
    throw usage('--list takes no option but --json, and no file');
  if (words.has('list')) return list(words, env);
  if (words.has('json')) throw usage('--json goes with --list only');
  const file = given ?? path.join(process.cwd(), configFileName);
  if (words.has('remove')) return remove(words, file, env);
  const reading = readFound(file, env);
  const confirmed = trustStoreOf(env).find(reading.place);
  const shownFile = neutraliseLine(reading.place.file, pathChars);
  printText(textOf(reading, confirmed));
  if (isConfirmed(reading, confirmed)) {
    process.stderr.write(`${shownFile} is already confirmed\n`);
    return EXIT.done;
  }
  if (!words.has('yes')) {
    if (!isTerminal(terminal))
      throw usage('there is no terminal to ask at', 'read what is shown above, and repeat with --yes to confirm it');
    if (!(await isAnsweredYes(terminal, '\nConfirm it? [y/N] '))) return EXIT.failed;
  }
  confirm(reading, env);
  process.stderr.write(`${shownFile} is confirmed\n`);
  return EXIT.done;
}

function list(words: Words, env: NodeJS.ProcessEnv): number {
  const all = trustStoreOf(env).list();
  if (words.has('json')) printJson(all.map(({ file, folder, uid, at }) => ({ file, folder, uid, at })));
  else if (all.length === 0) printText('no file is confirmed');
  else
    printText(
      textTable([
        ['FILE', 'USED FROM', 'CONFIRMED'],
        ...all.map(({ file, folder, at }) => [file, folder, at].map((cell) => neutraliseLine(cell, pathChars))),
      ]),
    );
  return EXIT.done;
}

/** Works for a file that no longer exists, too. */
function remove(words: Words, file: string, env: NodeJS.ProcessEnv): number {
  if (words.has('yes')) throw usage('--remove takes no --yes: it asks nothing');
  const removed = trustStoreOf(env).remove(realPath(file));
  printText(removed > 0 ? `${file} is no longer confirmed` : `${file} was not confirmed`);
  return removed > 0 ? EXIT.done : EXIT.failed;
}

const usage = (what: string, hint = 'hostler trust --help shows how it is used'): HostError =>
  new HostError('invalid_spec', `trust: ${what}`, { reason: 'usage', hint });
