/**
 * `hostler dead-letters`: lists, replays and drops messages that the broker could not deliver.
 * Not here: their storage (broker/dead-letters.ts); the running Hostler does the work (control/operations.ts).
 */
import type { DeadLetter } from '../broker/store-port.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, dataDirOption, jsonOption, type ParsedArgs, usageError } from './command.js';
import { withControlClient } from './control/control-client.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText, textTable } from './output/print.js';

/** Maximum length of an argument that an error quotes. */
const shownChars = 64;

type Shown = Pick<DeadLetter, 'seq' | 'id' | 'reasons'> & Partial<DeadLetter>;

const cellCharsMax = 400;

export const deadLetters: Command = {
  name: 'dead-letters',
  usage: '[list [--json] | replay NUMBER [--force] | drop NUMBER]',
  options: {
    force: 'replay also when no journal shows whether the call has run',
    ...jsonOption,
    ...dataDirOption,
  },
  positionals: [0, 2],
  async run(args) {
    const [what = 'list', number] = args.positionals;
    switch (what) {
      case 'list':
        return list(args);
      case 'replay':
        return act(args, 'replayLetter', number, 'is in its mailbox again');
      case 'drop':
        return act(args, 'dropLetter', number, 'is dropped');
      default:
        throw usageError(deadLetters, `'${neutraliseLine(what, shownChars)}' is not one of list, replay, drop`);
    }
  },
};

const list = (args: ParsedArgs): Promise<number> =>
  withControlClient(args, async (client) => {
    const found: Shown[] = [];
    await client.request('letters', {}, (letter) => found.push(letter as Shown));
    if (args.has('json')) printJson(found);
    else if (found.length === 0) printText('no dead letters');
    else printText(deadLettersTable(found));
    return EXIT.done;
  });

/** Cells may contain text of senders, so each cell is neutralised to one line. */
export const deadLettersTable = (found: readonly Shown[]): string =>
  textTable([
    ['NUMBER', 'FROM', 'TO', 'ID', 'REASONS'],
    ...found.map(({ seq, from, to, id, reasons }) =>
      [String(seq), from?.mailbox ?? '-', to ?? '-', id, reasons.join('; ')].map((cell) =>
        neutraliseLine(cell, cellCharsMax),
      ),
    ),
  ]);

function act(args: ParsedArgs, op: string, text: string | undefined, done: string): Promise<number> {
  const seq = text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
  if (seq === undefined) throw usageError(deadLetters, 'the number of the dead letter is missing or not a number');
  return withControlClient(args, async (client) => {
    const { isDone } = (await client.request(op, { seq, force: args.has('force') })) as { isDone: boolean };
    printText(isDone ? `dead letter ${seq} ${done}` : `there is no dead letter ${seq}`);
    return isDone ? EXIT.done : EXIT.failed;
  });
}
