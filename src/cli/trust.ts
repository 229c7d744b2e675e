/**
 * `hostler trust`: shows the parts of a `hostler.json` that need confirmation, and confirms the file for its folder.
 * A running Hostler applies the confirmation within a second.
 */
import path from 'node:path';
import { configFileName } from '../config/folders.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, jsonOption, type ParsedArgs, usageError } from './command.js';
import { realPath } from './config/find-config.js';
import { EXIT } from './exit-codes.js';
import { printJson, printLines, printText } from './output/print.js';
import { screenOf } from './output/styled.js';
import { table } from './output/table.js';
import { confirm, isAnsweredYes, isTerminal, ownTerminal, textOf } from './trust/ask-trust.js';
import { isConfirmed, readFound, trustStoreOf } from './trust/trusted-source.js';
import { pathOf } from './trust/unconfirmed-changes.js';

const pathChars = 300;

export const trust: Command = {
  name: 'trust',
  usage: '[FILE] [--yes] [--json] | --list | --remove [FILE]',
  example: 'trust',
  options: {
    yes: 'confirm without asking',
    list: 'list the confirmed files',
    remove: 'withdraw the confirmation of a file',
    ...jsonOption,
  },
  positionals: [0, 1],
  run: (args) => confirmFile(args),
};

export async function confirmFile(args: ParsedArgs, terminal = ownTerminal(), env = process.env): Promise<number> {
  const [given] = args.positionals;
  if (args.has('list') && (args.has('remove') || args.has('yes') || given !== undefined))
    throw usageError(trust, '--list takes no file and no option but --json');
  if (args.has('list')) return list(args, env);
  const file = given ?? path.join(process.cwd(), configFileName);
  if (args.has('remove')) return remove(args, file, env);
  const reading = readFound(file, env);
  const confirmed = trustStoreOf(env).find(reading.location);
  const shownFile = neutraliseLine(reading.location.file, pathChars);
  const isJson = args.has('json');
  const report = (isNowConfirmed: boolean): void => {
    const parts = reading.parts.map(({ at, digest }) => ({ path: pathOf(at), digest }));
    if (isJson) printJson({ file: reading.location.file, isConfirmed: isNowConfirmed, parts });
  };
  if (!isJson) printText(textOf(reading, confirmed));
  if (isConfirmed(reading, confirmed)) {
    report(true);
    process.stderr.write(`${shownFile} is already confirmed\n`);
    return EXIT.done;
  }
  if (!args.has('yes')) {
    report(false);
    if (isJson) return EXIT.failed;
    if (!isTerminal(terminal))
      throw usageError(
        trust,
        'there is no terminal for the confirmation',
        'read the list above, then repeat with --yes to confirm it',
      );
    if (!(await isAnsweredYes(terminal, '\nConfirm it? [y/N] '))) return EXIT.failed;
  }
  confirm(reading, env);
  report(true);
  process.stderr.write(`${shownFile} is confirmed\n`);
  return EXIT.done;
}

function list(args: ParsedArgs, env: NodeJS.ProcessEnv): number {
  const all = trustStoreOf(env).list();
  if (args.has('json')) printJson({ files: all.map(({ file, folder, uid, at }) => ({ file, folder, uid, at })) });
  else if (all.length === 0) printText('no file is confirmed');
  else
    printLines(
      table(
        [['FILE', 'USED FROM', 'CONFIRMED'], ...all.map(({ file, folder, at }) => [file, folder, at])],
        screenOf(process.stdout),
      ),
    );
  return EXIT.done;
}

/** The file need not exist any more. */
function remove(args: ParsedArgs, file: string, env: NodeJS.ProcessEnv): number {
  if (args.has('yes')) throw usageError(trust, '--remove takes no --yes: it does not ask');
  const removed = trustStoreOf(env).remove(realPath(file));
  if (args.has('json')) printJson({ file, removed });
  else printText(removed > 0 ? `${file} is no longer confirmed` : `${file} was not confirmed`);
  return removed > 0 ? EXIT.done : EXIT.failed;
}
