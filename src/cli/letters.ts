/**
 * `hostler letters`: messages that could not be delivered; send one again, or drop it.
 * Not here: where they are kept (broker/dead-letters.ts); the running Hostler is asked (control/letter-operations.ts).
 */
import type { DeadLetter } from '../broker/store-port.js';
import { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText } from './print.js';
import { withRunning } from './running.js';
import { textTable } from './text-table.js';

/** Of what was typed, in an error. */
const shownChars = 64;

type Shown = Pick<DeadLetter, 'seq' | 'id' | 'reasons'> & Partial<DeadLetter>;

const cellCharsMax = 400;

export function letters(words: Words): Promise<number> {
  const [what = 'list', number] = words.positionals;
  switch (what) {
    case 'list':
      return list(words);
    case 'replay':
      return act(words, 'replayLetter', number, 'is in its mailbox again');
    case 'drop':
      return act(words, 'dropLetter', number, 'is gone');
    default:
      throw usage(`'${neutraliseLine(what, shownChars)}' is none of list, replay, drop`);
  }
}

const list = (words: Words): Promise<number> =>
  withRunning(words, async (client) => {
    const found: Shown[] = [];
    await client.ask('letters', {}, (letter) => found.push(letter as Shown));
    if (words.has('json')) printJson(found);
    else if (found.length === 0) printText('no dead letters');
    else printText(lettersTable(found));
    return EXIT.done;
  });

/** Senders chose much of it: a cell is one line, and moves no cursor. */
export const lettersTable = (found: readonly Shown[]): string =>
  textTable([
    ['NUMBER', 'FROM', 'TO', 'ID', 'REASONS'],
    ...found.map(({ seq, from, to, id, reasons }) =>
      [String(seq), from?.mailbox ?? '-', to ?? '-', id, reasons.join('; ')].map((cell) =>
        neutraliseLine(cell, cellCharsMax),
      ),
    ),
  ]);

function act(words: Words, op: string, text: string | undefined, done: string): Promise<number> {
  const seq = text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
  if (seq === undefined) throw usage('the number of the letter is missing, or is none');
  return withRunning(words, async (client) => {
    const { isDone } = (await client.ask(op, { seq, force: words.has('force') })) as { isDone: boolean };
    printText(isDone ? `letter ${seq} ${done}` : `there is no letter ${seq}`);
    return isDone ? EXIT.done : EXIT.failed;
  });
}

const usage = (what: string): HostError =>
  new HostError('invalid_spec', `letters: ${what}`, {
    reason: 'usage',
    hint: 'hostler letters --help says how it is used',
  });
